"""What pages may look like, and in which cookies of the browser that is kept."""

THEMES = ("system", "light", "dark")
DENSITIES = ("compact", "comfortable")
THEME_COOKIE = "pitwall_theme"
DENSITY_COOKIE = "pitwall_density"
