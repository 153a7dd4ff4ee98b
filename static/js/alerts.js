// The alerts pages look again when an alert of the project changes, and every fifteen seconds.

import { atMostEvery, refreshParts } from "./refresh.js";
import { openFeed } from "./socket.js";

const refresh = atMostEvery(500, () => refreshParts());
const project = document.documentElement.dataset.project;
if (project) {
  openFeed({
    path: `/ws/updates?project=${encodeURIComponent(project)}`,
    onMessage: (message) => {
      if (message.type === "alerts") refresh();
    },
    onOpen: refresh,
  });
}
setInterval(refresh, 15_000);
