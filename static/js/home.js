// Home follows all runs of the project, and looks at the cluster every ten seconds.

import { atMostEvery, refreshParts } from "./refresh.js";
import { openFeed } from "./socket.js";

const refresh = atMostEvery(1500, () => refreshParts());
const project = document.documentElement.dataset.project;
if (project) {
  openFeed({
    path: `/ws/updates?project=${encodeURIComponent(project)}`,
    onMessage: (message) => {
      if (message.type === "run" || message.type === "alerts") refresh();
    },
  });
}
setInterval(refresh, 10_000);
