// A picture that is dragged to another paragraph: leads to the address where it stands there.
const layout = document.querySelector("[data-placement]");
let dragged = null;

layout.addEventListener("dragstart", (event) => {
  dragged = event.target.closest("[data-place]");
  event.dataTransfer.effectAllowed = "move";
  event.dataTransfer.setData("text/plain", dragged.dataset.place);
});
layout.addEventListener("dragover", (event) => {
  const paragraph = event.target.closest("[data-paragraph]");
  if (!dragged || !paragraph) return;
  event.preventDefault();
  mark(paragraph);
});
layout.addEventListener("dragend", () => { dragged = null; mark(null); });
layout.addEventListener("drop", (event) => {
  const paragraph = event.target.closest("[data-paragraph]");
  if (!dragged || !paragraph) return;
  event.preventDefault();
  move(dragged, paragraph);
});

function mark(paragraph) {
  for (const each of layout.children) each.classList.toggle("over", each === paragraph);
}

function move(figure, paragraph) {
  const image = figure.dataset.place.split(":")[0];
  const others = [...layout.querySelectorAll("[data-place]")].filter((each) => each !== figure);
  const target = new URL(location.href);
  target.searchParams.delete("place");
  for (const place of [...others.map((each) => each.dataset.place), `${image}:${paragraph.dataset.paragraph}`]) {
    target.searchParams.append("place", place);
  }
  target.hash = figure.id;
  location.assign(target);
}
