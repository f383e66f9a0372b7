// What every page does with a script: forms that answer when something is changed, and arrow keys among many links.
// Without a script forms have a button, and links are links.

// <form data-live>: sent when something else is chosen; a button that does nothing else is not needed then.
function live(form) {
  form.addEventListener("change", (event) => { if (event.target.matches("select")) form.requestSubmit(); });
  for (const button of form.querySelectorAll("button[data-without-script]")) button.hidden = true;
}

// <div data-arrows="SELECTOR">: one tab stop; arrow keys, Home and End move among its links, or what is selected.
function arrows(group) {
  const links = [...group.querySelectorAll(group.dataset.arrows || "a, button")];
  const kept = links.find((link) => link === document.activeElement) ?? links[0];
  for (const link of links) link.tabIndex = link === kept ? 0 : -1;
  group.addEventListener("keydown", (event) => {
    const at = links.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: links.length - 1 }[event.key];
    if (at < 0 || to === undefined || !links[to]) return;
    event.preventDefault();
    links[at].tabIndex = -1;
    links[to].tabIndex = 0;
    links[to].focus();
  });
  group.addEventListener("focusin", (event) => {
    for (const link of links) link.tabIndex = link === event.target ? 0 : -1;
  });
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

prepare();
document.addEventListener("htmx:afterSwap", prepare);
// What was found is said aloud: an element with data-said, after a part of the page was replaced.
document.addEventListener("htmx:afterSettle", () => {
  const said = document.querySelector("main [data-said]");
  if (said) document.getElementById("said").textContent = said.textContent;
});
