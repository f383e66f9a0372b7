// What every page does with a script: forms that answer when something is changed, arrow keys among many links, keys
// that press a button, and answers in the order of what was asked. Without a script forms have a button, and links are
// links.

// <form data-live>: sent when something else is chosen; a button that does nothing else is not needed then.
function live(form) {
  form.addEventListener("change", (event) => { if (event.target.matches("select")) form.requestSubmit(); });
  for (const button of form.querySelectorAll("button[data-without-script]")) button.hidden = true;
}

// <div data-arrows="SELECTOR">: one tab stop; arrow keys, Home and End move among its links, or what is selected.
function arrows(group) {
  const among = () => [...group.querySelectorAll(group.dataset.arrows || "a, button")];
  const stop = (kept) => { for (const link of among()) link.tabIndex = link === kept ? 0 : -1; };
  stop(among().find((link) => link === document.activeElement) ?? among()[0]);
  group.addEventListener("keydown", (event) => {
    if (event.target.matches("input, textarea, select")) return;
    const scope = event.target.closest("[data-key-scope]");  // of letters: arrows move from wherever these act
    const links = among(), at = links.findIndex((link) => link === event.target || scope?.contains(link));
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 }[event.key];
    if (at < 0 || to === undefined || !links[to]) return;
    event.preventDefault();
    links[to].focus();
  });
  group.addEventListener("focusin", (event) => { if (among().includes(event.target)) stop(event.target); });
}

// Each element once, also where a part of the page was replaced.
const prepared = new WeakSet();
function prepare() {
  for (const [selector, make] of [["form[data-live]", live], ["[data-arrows]", arrows]]) {
    for (const each of document.querySelectorAll(selector)) {
      if (!prepared.has(each)) make(each);
      prepared.add(each);
    }
  }
}

// A key presses what has it as data-key: in the picture that has the focus, in the tray, or beside the picture.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.matches("input, textarea, select")) return;
  const scope = event.target.closest("[data-key-scope]");
  if (!scope) return;
  const wanted = `[data-key="${CSS.escape(event.key.length === 1 ? event.key.toLowerCase() : event.key)}"]`;
  const pressed = scope.querySelector(wanted) ?? document.querySelector(`#tray ${wanted}, main > p ${wanted}`);
  if (!pressed) return;
  event.preventDefault();
  (scope.querySelector("a.open") ?? scope).focus();  // what is pressed will be replaced
  pressed.click();
});

// A button that was clicked will be replaced: the next key is the picture's, as after a key.
document.addEventListener("click", (event) => {
  if (!event.detail) return;  // a key's
  const picture = event.target.closest("button[data-key]")?.closest("[data-key-scope]")?.querySelector("a.open");
  if (picture) setTimeout(() => picture.focus());  // after the form is sent: htmx asks which button has the focus
});

prepare();
document.addEventListener("htmx:afterSwap", prepare);

// An answer is shown while nothing newer was asked for: the list that went on, or the filter before, would otherwise
// take the place and the address of what was pressed after it. A decision is no view: its answer is always shown.
let newest = 0, restoring = null;
function asks() {
  newest += 1;
  restoring?.abort();
  restoring = null;
}
document.addEventListener("htmx:beforeRequest", ({ detail: { elt, xhr, boosted, requestConfig } }) => {
  if (!boosted && requestConfig.verb !== "get") return;
  if (boosted) asks();
  const at = newest;
  elt.addEventListener("htmx:beforeOnLoad", (event) => {  // of the element: it may be on no page by then
    if (event.detail.xhr === xhr && at < newest) event.preventDefault();
  });
});
document.addEventListener("htmx:historyCacheMiss", ({ detail }) => {  // back, or forward
  asks();
  restoring = detail.xhr;
});

// What was found is read out: an element with data-announce, after a part of the page was replaced.
document.addEventListener("htmx:afterSettle", () => {
  const found = document.querySelector("main [data-announce]");
  if (found) document.getElementById("announced").textContent = found.textContent;
});
