// What a chart is made of: what it is asked to show (Plot), where it finds it (Store), what it has drawn (Shown).

import type { Xs, Ys } from "./align.js";
import type { Branches } from "./branches.js";
import type { readLines } from "./columns.js";
import type { Series, Stretch } from "./series.js";

/** A stretch of an x axis, by the name that ./axes.js knows it by. */
export type Zoom = { min: number; max: number; axis: string };

export interface Plot {
  lines: Line[];
  unit: string;
  stacked?: boolean;
  limits?: { value: number; label: string }[];
  band?: [number, number]; // least and most of the usual range
  isTime?: boolean; // x is Unix time, whatever the page's axis is
}

export interface Line {
  name: string;
  label: string;
  color: string; // a CSS variable
  dash?: boolean | number[] | null;
  isPoints?: boolean;
  isPlain?: boolean; // no ghost under it
  isGhost?: boolean; // nothing but a ghost
  fixed?: boolean; // lanes share its color
  width?: number; // CSS pixels
  role?: string; // of one lane only
  rank?: number;
}

/** The elements of a card. */
export interface Parts {
  body: HTMLElement;
  value?: HTMLElement | null;
  points?: HTMLElement | null;
  legend?: HTMLElement | null;
  /** The buttons that save the chart: off until it has points. */
  saving?: HTMLFieldSetElement | null;
}

/** A step, or steps, with what stands there; the cursor reads its text. */
export type Mark = { x: number; to?: number; type: string; text?: string; color?: string };

/** One lane's line of one attempt: points, or columns of the screen. */
export type Source = Series | ReturnType<typeof readLines>["lines"][number];

export interface Store {
  of(name: string): Source[];
  branches?: Branches; // which steps belong to the history
  lanes?: Spans; // the timeline's, for charts over time
  placesOf?(axis: string, attempt: number | null): Placed | null; // null: x stays as it is
  windowOf?(kind: string, zoom: Zoom): Stretch | null; // in units of a series of this kind; null: not known
}

/** Gives the place of a step on an x axis, null where it is not known. */
export type Placed = (step: number) => number | null;

interface Spans {
  numSpans: number;
  start: number;
  end: number;
  clock: { date(offset: number): Date };
}

/** What one attempt has of a line. */
export type AttemptPart = { kind: string; attempt: number; latest: number | null } & ReturnType<Series["columns"]> &
  Partial<Extremes> &
  Partial<Members>;

/** Of how many lines each point of a mean is, and of how many at most. */
interface Members {
  counts: number[];
  most: number;
}

/** What each column of the screen reaches from and to; x and value of what is not finite. */
interface Extremes {
  low: (number | null)[];
  high: (number | null)[];
  odd: [x: number, value: number][];
}

/** What lies around a line, by x. */
export interface Envelope extends Omit<Extremes, "odd"> {
  color: string;
  x: number[];
  breaks: number[];
  line: (number | null)[];
}

export interface Column extends Partial<Extremes>, Partial<Members> {
  x: number[];
  y: (number | null)[];
  smooth: (number | null)[];
  breaks: number[]; // places before which there is a hole
  joins?: number[]; // places before which another attempt goes on
  n: number;
  of: number;
  latest: number | null;
}

export interface DrawnLine extends Line {
  id: string;
  column: Column;
  look?: string;
  isDead?: boolean;
  attempt?: number;
}

export interface Shown {
  data: [xs: Xs, ...ys: Ys[]]; // as uPlot wants them
  drawn: DrawnLine[]; // for each column after the first
  odd: [x: number, value: number, line: DrawnLine][]; // values that are not finite
  envelopes: Envelope[];
  layout: string; // of another one, the chart is built anew
  lines: DrawnLine[]; // without dead branches
  numDead: number;
}
