// The New run page: the form, what the server says of it while it is filled, and the launch.

import { around, controls, find, jsonOf } from "./dom.js";
import { fill, gettext, icon, ngettext } from "./format.js";
import { bodyOf, post, Question, Unanswered } from "./new_run/ask.js";
import { Combination, NAMES } from "./new_run/combination.js";
import { wireEditor } from "./new_run/editor.js";
import { Findings } from "./new_run/findings.js";
import { wireHelp } from "./new_run/help.js";
import { Knobs, walkTabs } from "./new_run/knobs.js";
import { wireMix } from "./new_run/mix.js";
import { hardwareOfAddress, Plan } from "./new_run/plan.js";
import { Problems } from "./new_run/problems.js";
import { wireSecrets } from "./new_run/secrets.js";
import { apply, Draft, difference, History, snapshot } from "./new_run/state.js";
import { Sweep } from "./new_run/sweep.js";
import { download, wireImport, wireRecipes } from "./new_run/transfer.js";
import { wireUpload } from "./new_run/upload.js";
import { toast } from "./toast.js";

const form = find("form#new-run");
const facts = jsonOf("new-run-facts");
const draft = new Draft();
const fields = controls(form);
const place = (/** @type {string} */ name) => find(`[data-${name}]`, form);

const combination = new Combination(form, facts, { onShown: () => knobs.adopt() });
const knobs = new Knobs(form, facts, { onRestore: (names) => changed(names), words: () => combination.words });
const problems = new Problems(form, knobs);
apply(form, hardwareOfAddress());
const pristine = snapshot(form); // what there is to choose stands in it by now
let history = new History(pristine);
let commands = { cli: "", curl: "", spec: "", yaml: "", python: "", trainer: "" };
let fullSpec = "";
let command = "cli";
let previewOf = ""; // the texts that the shown preview was made of
let previewState = "none"; // none | asked | answered | unanswered
let previewFailure = "";
let numPassed = 0;
let columnsOf = ""; // the data whose recognized columns were filled in
let rewardOf = ""; // the texts that the reward was last tried with
let isLaunching = false;
let launchLabel = "";

const sweep = new Sweep(form, facts, problems, {
  onChange: (names) => changed(names),
  onAnswer() {
    showLabel();
    showCommand();
    showVerdict();
  },
});

/** The button says what it will do: launch the run, or the sweep. */
function showLabel() {
  const text = sweep.label || (plan.refuses ? plan.refusal : launchLabel);
  const isRefused = (plan.refuses && !sweep.isOn) || problemsOfLaunch().length > 0 || findings.blocking.length > 0;
  place("launch").toggleAttribute("data-refuses", isRefused);
  if (text && !isLaunching) place("launch-label").textContent = text;
}

// ---- What the server says -------------------------------------------------------------------------------------------

const check = new Question(form.dataset.check, form, {
  waitMs: 80,
  onStart: () => plan.begin(),
  onAnswer(answer) {
    problems.set("form", answer.problems);
    for (const name of ["summary", "command-text"])
      place(name).classList.toggle("is-stale", answer.problems.length > 0);
    if (answer.problems.length) {
      preview.cancel();
      if (previewState === "asked") {
        previewState = "none";
        previewOf = "";
      }
      dim(previewTexts() !== previewOf);
      findings.dim();
      plan.dim();
    } else {
      plan.take(answer);
      findings.take(answer);
      place("summary").innerHTML = answer.summary; // escaped by the server's template
      launchLabel = answer.launch;
      showLabel();
      place('caption="hardware.device"').textContent = answer.hardware ?? "";
      commands = answer.commands;
      fullSpec = answer.full;
      showCommand();
      askPreview();
    }
    showVerdict();
  },
  onFailure(sentence) {
    plan.dim();
    showVerdict(sentence);
  },
});

const plan = new Plan(form, {
  onUse(values, text = gettext("Applied.")) {
    put(values);
    toast(text, { undo });
  },
  onProblems: (found) => problems.set("plan", found),
  onVerdict: () => showLabel(),
  onRead: () => check.ask({ now: true }),
});

const findings = new Findings(form, {
  onOverride(rules) {
    put({ overridden: rules.join(" ") });
  },
  onJump(name) {
    const field = [...form.querySelectorAll(".field[data-name]")].find((f) =>
      f.dataset.name?.split(" ").some((n) => name === n || name.startsWith(`${n}.`)),
    );
    if (!field) return;
    knobs.reveal(field)?.focus();
    field.scrollIntoView({ block: "center" });
  },
});

find(".new-run-panel", form).addEventListener("click", (event) => {
  const button = around(event, "[data-fix]");
  if (!button) return;
  put(JSON.parse(button.dataset.fix ?? ""));
  toast(gettext("Applied."), { undo });
});

const preview = new Question(form.dataset.preview, form, {
  waitMs: 250,
  onStart() {
    previewState = "asked";
    showVerdict();
  },
  onAnswer(answer) {
    previewState = "answered";
    const where = place("preview-place");
    dim(false);
    if (answer.html) {
      where.innerHTML = answer.html; // escaped by the server's template
      numPassed = where.querySelectorAll("[data-check=passed]").length;
    }
    problems.set("preview", answer.problems);
    find("#data-columns").replaceChildren(
      ...(answer.columns ?? []).map((name) => Object.assign(document.createElement("option"), { value: name })),
    );
    if (answer.html && !check.isBusy) check.ask({ now: true }); // the plan takes what was counted in the data
    for (const [field, text] of Object.entries(answer.captions ?? {}))
      find(`[data-caption="${field}"]`, form).textContent = text || "\u00a0";
    showVerdict();
    takeColumns(answer.recognized ?? {});
  },
  onFailure(sentence) {
    previewState = "unanswered";
    previewFailure = sentence;
    previewOf = "";
    showVerdict();
  },
});

/** Fill in the columns that the data was recognized to have: once for each data set, so that Undo undoes it. */
function takeColumns(recognized) {
  const names = Object.keys(recognized).filter((name) => fields[name]);
  const of = JSON.stringify([textsOf(/^(algorithm$|data\.(kind|id|split))/), recognized]);
  if (!names.length || columnsOf === of) return;
  columnsOf = of;
  put(Object.fromEntries(names.map((name) => [name, recognized[name]])));
  const shown = names.map((name) => `${facts.fields[name]?.label ?? name}: ${recognized[name] || gettext("none")}`);
  toast(fill(gettext("Columns recognized. %(columns)s"), { columns: shown.join(", ") }), { undo });
}

const reward = new Question(form.dataset.reward, form, {
  waitMs: 0,
  onStart() {
    for (const button of form.querySelectorAll("button[data-try-reward]")) {
      button.disabled = true;
      button.dataset.label ??= button.textContent ?? "";
      button.textContent = gettext("Trying, up to 30 s");
    }
  },
  onAnswer(answer) {
    restReward();
    rewardOf = rewardTexts();
    if (answer.html) place("reward-place").innerHTML = answer.html; // escaped by the server's template
    problems.set("reward", answer.problems);
    place("reward-place").classList.remove("is-stale");
    showVerdict();
  },
  onFailure(sentence) {
    restReward();
    toast(sentence, { isError: true });
  },
});

function restReward() {
  for (const button of form.querySelectorAll("button[data-try-reward]")) {
    button.disabled = false;
    button.textContent = button.dataset.label ?? "";
  }
}

function textsOf(pattern) {
  return JSON.stringify(Object.entries(snapshot(form)).filter(([name]) => pattern.test(name)));
}

function rewardTexts() {
  return textsOf(/^(reward|data|model)\./);
}

function previewTexts() {
  return textsOf(/^(algorithm$|trainer\.|model\.|data\.|hardware\.|knobs\.(rollout|train|eval|algorithm|data)\.)/);
}

/** What is shown of data and model belongs to an earlier state of the form, or again to this one. */
function dim(isStale) {
  place("preview-place").classList.toggle("is-stale", isStale);
  for (const field of ["model.id", "data.id"])
    find(`[data-caption="${field}"]`, form).classList.toggle("is-stale", isStale);
}

function askPreview() {
  const texts = previewTexts();
  if (texts === previewOf) {
    dim(false);
    return;
  }
  previewOf = texts;
  dim(true);
  preview.ask();
}

/** What keeps the run from being launched: a what-if is no part of it. */
function problemsOfLaunch() {
  return problems.all().filter((each) => !each.field.startsWith("plan."));
}

function showVerdict(failure = "") {
  const all = problemsOfLaunch();
  const unknown = place("preview-place").querySelectorAll("[data-check=unknown]");
  const isUntried =
    combination.words.includes("rl") && fields["reward.kind"].value === "custom" && rewardOf !== rewardTexts();
  let [state, mark, word, sentence] = [
    "ready",
    "check",
    gettext("ready"),
    fill(ngettext("%(n)s check passed.", "All %(n)s checks passed.", numPassed), { n: numPassed }),
  ];
  if (failure) [state, mark, word, sentence] = ["missing", "help-circle", gettext("not checked"), failure];
  else if (all.length) {
    word = fill(ngettext("%(n)s problem", "%(n)s problems", all.length), { n: all.length });
    [state, mark, sentence] = ["failed", "x", all[0].message];
  } else if (findings.blocking.length) {
    word = fill(ngettext("%(n)s error", "%(n)s errors", findings.blocking.length), { n: findings.blocking.length });
    [state, mark, sentence] = ["failed", "x", findings.blocking[0]];
  } else if (previewState === "unanswered")
    [state, mark, word, sentence] = ["missing", "help-circle", gettext("not previewed"), previewFailure];
  else if (previewState !== "answered")
    [state, mark, word, sentence] = [
      "missing",
      "help-circle",
      gettext("not checked yet"),
      gettext("Data and model are being read."),
    ];
  else if (isUntried)
    [state, mark, word, sentence] = [
      "warning",
      "alert-triangle",
      gettext("reward not tried"),
      gettext("It is tried before the run is queued; try it here to see what it gives."),
    ];
  else if (unknown.length) {
    const said =
      unknown.length === 1
        ? (unknown[0].lastElementChild?.textContent ?? "")
        : gettext("Some checks cannot be made from here; see below.");
    [state, mark, word, sentence] = ["missing", "help-circle", gettext("not all checked"), said];
  }
  place("busy").textContent = previewState === "asked" && !failure ? gettext("checking…") : "";
  showLabel();
  if (previewState === "asked" && !all.length && !failure && numPassed) return; // the old verdict stays until the new one is here
  const badge = find(".state", place("verdict"));
  badge.dataset.state = state;
  badge.replaceChildren(icon(mark), Object.assign(document.createElement("span"), { textContent: word }));
  const said = find("#verdict-title");
  said.textContent = sentence;
  said.title = sentence;
}

/** Rewards beside the first one, where the trainer mixes them. */
function showParts() {
  showMix({ isAble: ["rl", "native"].every((word) => combination.words.includes(word)) });
}

// ---- Changes of the form ----------------------------------------------------------------------------------------------

/** Something changed: paint at once, then ask. `isDone` says that it is one step for Undo. */
function changed(names, { isDone = true } = {}) {
  for (const name of names) problems.touch(name);
  const now = snapshot(form);
  if (isDone) history.commit(now);
  find("button[data-undo]", form).disabled = history.size === 0;
  if (difference(pristine, now).length) draft.write(now);
  else draft.drop();
  const isTried = !["file", "url", "judge", "model"].includes(fields["reward.kind"].value); // others live with the trainer
  place("reward-card").hidden = !combination.words.includes("rl") || !isTried;
  if (rewardOf && rewardOf !== rewardTexts()) place("reward-place").classList.add("is-stale");
  numberLines();
  showParts();
  secrets.show();
  problems.show();
  plan.paint();
  check.ask();
  sweep.changed();
}

/** Put texts into the form, after the groups that they belong to. */
async function put(values, { isDone = true } = {}) {
  apply(form, { base: values.base ?? fields.base.value });
  combination.choose(values);
  combination.forget();
  if (combination.isBehind && !(await recombine(() => ({})))) return;
  apply(form, values);
  combination.settle();
  changed(Object.keys(values), { isDone });
}

/** Show the groups of the trainer, version and algorithm that are chosen; true once they are there. */
async function recombine(carry) {
  check.cancel();
  try {
    return await combination.show(carry);
  } catch (error) {
    if (!(error instanceof Unanswered)) throw error;
    combination.revert();
    toast(error.message, { isError: true });
    return false;
  }
}

/** Another trainer, version or algorithm: what was typed and still means something is kept. */
async function chose(name) {
  const carry = () =>
    Object.fromEntries(
      knobs
        .changed()
        .filter((n) => fields[n].closest("[data-groups]"))
        .map((n) => [n, fields[n].value]),
    );
  combination.settle();
  if (!combination.isBehind || (await recombine(carry))) changed([name]);
}

async function undo() {
  const before = history.back();
  if (!before) return;
  const names = difference(snapshot(form), before);
  await put(before, { isDone: false });
  const field = names.length === 1 ? fields[names[0]]?.closest(".field") : null;
  if (field) knobs.reveal(field)?.focus();
}

form.addEventListener("input", (event) => {
  const name = around(event, "input, textarea")?.name;
  if (name) changed([name], { isDone: false });
});
form.addEventListener("change", (event) => {
  const name = around(event, "input, select, textarea")?.name ?? "";
  if (NAMES.includes(name)) chose(name);
  else if (name) changed([name]);
});
place("undo").addEventListener("click", undo);
place("save").addEventListener("click", () => {
  const blocked = problems.of("form");
  if (blocked.length || !fullSpec) {
    problems.focusFirst();
    return;
  }
  download(fullSpec, `${(fields.name.value || "run").replace(/[^\w.-]+/g, "-")}.json`);
});
for (const button of form.querySelectorAll("button[data-try-reward]"))
  button.addEventListener("click", () => reward.ask({ now: true }));

const numberLines = wireEditor(form, {
  commit(text, fileName) {
    put({ "reward.source": text, "reward.file_name": fileName });
    fields["reward.source"].focus();
  },
});
const secrets = wireSecrets(form, { kept: facts.secrets });
const showMix = wireMix(form, { changed: () => changed(["reward.more"]) });
showParts();
wireHelp(form, facts);
wireImport(form, {
  onValues(values, report) {
    put(values);
    place("pasted-place").innerHTML = report; // escaped by the server's template
    toast(gettext("The form now holds what you imported."), { undo });
  },
});
place("pasted-place").addEventListener("click", (event) => {
  if (around(event, "[data-pasted-close]")) place("pasted-place").replaceChildren();
});
wireRecipes(form, {
  onValues(values) {
    put(fields.name.value ? { ...values, name: fields.name.value } : values);
    toast(gettext("The form now holds the recipe."), { undo });
  },
});
wireUpload(form, {
  onUploaded(id) {
    put({ "data.id.upload": id });
  },
  onProblem: (sentence) => problems.set("upload", sentence ? [{ field: "data.id", message: sentence }] : []),
});

// ---- The bar at the bottom --------------------------------------------------------------------------------------------

function showCommand() {
  const shown = sweep.commands ?? commands;
  place("command-text").textContent = shown[command] ?? "";
  find(".launch-bar", form).toggleAttribute("data-tall", ["spec", "yaml", "python", "trainer"].includes(command));
  place("copy-command").dataset.copy = (command === "trainer" ? shown.script : shown[command]) ?? "";
}

const tabs = [...form.querySelectorAll("[data-command]")];
walkTabs(tabs, (tab) => {
  command = tab.dataset.command;
  for (const other of tabs) {
    other.setAttribute("aria-selected", String(other === tab));
    other.tabIndex = other === tab ? 0 : -1;
  }
  showCommand();
});

async function launch({ isProbe = false } = {}) {
  if (findings.blocking.length && !sweep.isOn) {
    findings.focus();
    return;
  }
  if (plan.refuses && !sweep.isOn && !isProbe) {
    plan.focus();
    return;
  }
  if (isLaunching) return; // a second click is the same wish; the server has the same key for both besides
  isLaunching = true;
  const button = isProbe ? place("probe") : place("launch");
  const label = isProbe ? find("span", button) : place("launch-label");
  const text = label.textContent;
  button.setAttribute("aria-disabled", "true");
  label.textContent = gettext("Checking and queueing");
  try {
    const { status, answer } = await post(sweep.isOn && !isProbe ? sweep.launchUrl : form.action, form, {
      body: secrets.into(isProbe ? probeBody() : bodyOf(form)),
    });
    if (status === 201) {
      draft.drop();
      location.assign(answer.url);
      return; // the button stays as it is until the run's page is here
    }
    problems.set("launch", answer.problems);
    problems.focusFirst();
    showVerdict();
  } catch (error) {
    if (!(error instanceof Unanswered)) throw error;
    problems.set("launch", [{ field: "", message: error.message }]);
    problems.focusFirst();
  }
  isLaunching = false;
  button.removeAttribute("aria-disabled");
  label.textContent = text;
  showLabel();
}

/** The form as a probe, with a key of its own: the page may launch the run itself as well. */
function probeBody() {
  const body = bodyOf(form);
  body.set("probe", "1");
  body.set("idempotency_key", `${body.get("idempotency_key")}-probe`);
  return body;
}

place("probe").addEventListener("click", () => launch({ isProbe: true }));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  launch();
});
document.addEventListener("keydown", (event) => {
  const isControl = event.ctrlKey || event.metaKey;
  if (document.querySelector("dialog[open]") || !isControl) return;
  if (event.key === "Enter") {
    event.preventDefault();
    launch();
  }
  const isInText = around(event, "input, textarea");
  if (event.key.toLowerCase() === "z" && !event.shiftKey && !isInText) {
    event.preventDefault();
    undo();
  }
});
// Enter in a one-line input would launch by accident; it confirms the value, no more.
form.addEventListener("keydown", (event) => {
  const input = around(event, "input");
  if (event.key !== "Enter" || event.ctrlKey || event.metaKey || !input) return;
  event.preventDefault();
  input.dispatchEvent(new Event("change", { bubbles: true }));
});
window.addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
}); // its key has launched already

// ---- Begin ------------------------------------------------------------------------------------------------------------

const kept = draft.read();
if (facts.problems.length) {
  problems.set("launch", facts.problems);
  problems.focusFirst();
} else if (kept && difference(pristine, kept).length) {
  await put(kept, { isDone: false });
  history = new History(snapshot(form));
  place("draft").hidden = false;
  place("draft-drop").addEventListener("click", () => {
    put(pristine);
    place("draft").hidden = true;
    draft.drop();
  });
}
changed([], { isDone: false });
if (facts.shows) find(`[data-show="${facts.shows}"]`, form).click(); // the address set knobs: show which
check.ask({ now: true });
