// What the browser, the page and its libraries give to every module, for `npm run types`.

/** The kind of element that a selector's last part names: "li > a.x" is an HTMLAnchorElement. Without a tag, an HTMLElement. */
type Selected<S extends string> = S extends `${infer A}[${string}]${infer B}`
  ? Selected<`${A}${B}`>
  : S extends `${infer A}, ${infer B}`
    ? Selected<A> | Selected<B>
    : S extends `${string} ${infer B}`
      ? Selected<B>
      : S extends `${infer A}.${string}` | `${infer A}:${string}` | `${infer A}#${string}`
        ? Tagged<A>
        : Tagged<S>;
type Tagged<T extends string> = T extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[T] : HTMLElement;

interface ParentNode {
  querySelector<S extends string>(selector: S): Selected<S> | null;
  querySelectorAll<S extends string>(selector: S): NodeListOf<Selected<S>>;
}

interface Element {
  closest<S extends string>(selector: S): Selected<S> | null;
}

/** What inputs, selects and text areas share. */
interface Control extends HTMLElement {
  name: string;
  type: string;
  value: string;
  disabled: boolean;
  select(): void;
}

interface DocumentEventMap {
  "pitwall:connection": CustomEvent<{ isConnected: boolean }>;
  "pitwall:theme": CustomEvent<string>;
  "pitwall:toast": CustomEvent<{ text: string; isError?: boolean }>;
  "htmx:afterSwap": CustomEvent<{ target: HTMLElement }>;
  "htmx:configRequest": CustomEvent<{ headers: Record<string, string> }>;
  "htmx:beforeSwap": CustomEvent<{
    target: HTMLElement;
    xhr: XMLHttpRequest;
    serverResponse: string;
    shouldSwap: boolean;
  }>;
  "htmx:responseError": CustomEvent<{ target: HTMLElement; xhr: XMLHttpRequest }>;
}

interface Element {
  chart?: import("./charts/chart.js").Chart; // the chart that it holds
}

interface EventTarget {
  // what our own classes tell; the listener's class says what of
  addEventListener(
    type: "asked" | "hover" | "layer" | "phases" | "problem",
    listener: (event: CustomEvent) => void,
  ): void;
}

declare const htmx: typeof import("htmx.org").default;

// Django's catalog of translated texts, where the page loads it.
declare var gettext: ((text: string) => string) | undefined;
declare var ngettext: ((one: string, many: string, n: number) => string) | undefined;
