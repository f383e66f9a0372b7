// The link viewer with a script: links fade at the threshold while it is moved, and pictures open large.
// Without a script the form is sent, and a picture is a page of its own.

const slider = document.getElementById("threshold");

function atThreshold(value) {
  for (const element of document.querySelectorAll(".linked [data-similarity]")) {
    element.classList.toggle("below", Number(element.dataset.similarity) < value);
  }
  document.querySelector("output[for=threshold]").textContent = value.toFixed(2);
}

if (slider) {
  slider.addEventListener("input", () => atThreshold(Number(slider.value)));
  slider.addEventListener("change", (event) => {
    event.stopPropagation();  // what is there is enough: nothing is asked of the server
    const address = new URL(location.href);
    address.searchParams.set("threshold", slider.value);
    history.replaceState(history.state, "", address);
  });
}

const large = document.getElementById("large");

document.addEventListener("click", (event) => {
  const link = event.target.closest("a.enlarge");
  if (!link || !large || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const picture = large.querySelector("img");
  picture.src = link.href;
  picture.alt = link.querySelector("img").alt;
  large.showModal();
});
