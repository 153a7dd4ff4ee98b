// The list of sweeps follows the project's runs.

import { atMostEvery, refreshParts } from "./refresh.js";
import { openFeed } from "./socket.js";

const refresh = atMostEvery(2000, () => refreshParts());
const project = document.documentElement.dataset.project;
if (project)
  openFeed({
    path: `/ws/updates?project=${encodeURIComponent(project)}`,
    onMessage: (message) => {
      if (message.type === "run") refresh();
    },
  });
setInterval(refresh, 15_000);
