"""`make proof-security`: attacks on real consoles, and what stopped each. `ONLY` names parts or topologies."""
