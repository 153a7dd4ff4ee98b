// The cluster page looks again every three seconds, and at once when a run of the project changes.

import { atMostEvery, refreshParts } from "./refresh.js";
import { openFeed } from "./socket.js";

const refresh = atMostEvery(1500, () => refreshParts());
const project = document.documentElement.dataset.project;
if (project) {
  openFeed({
    path: `/ws/updates?project=${encodeURIComponent(project)}`,
    onMessage: (message) => {
      if (message.type === "run") refresh();
    },
  });
}
setInterval(refresh, 3000);
