/* What is wider than the paper becomes as much smaller as it takes.  Called once, when mathematics,
   fonts and pictures are there and the window is as wide as the text on the paper. */
window.fitToPaper = () => {
  "use strict";
  const smallest = { equation: 1, formula: 1, table: 1 };

  const shrink = (box, kind, natural, room) => {
    if (natural <= room) return;
    const factor = Math.floor((room / natural) * 0.99 * 1000) / 1000;
    const size = parseFloat(getComputedStyle(box).fontSize);
    box.style.fontSize = `${size * factor}px`;
    smallest[kind] = Math.min(smallest[kind], factor);
  };

  for (const box of document.querySelectorAll("mjx-container[display='true']")) {
    const frame = box.parentElement;
    const number = frame.querySelector(":scope > .eqno");
    const room = frame.clientWidth - (number ? number.offsetWidth + 16 : 0);
    shrink(box, "equation", box.querySelector("mjx-math").getBoundingClientRect().width, room);
  }
  for (const box of document.querySelectorAll("mjx-container:not([display='true'])")) {
    const frame = box.closest("p, li, td, th, dd, dt, h1, h2, h3, h4, figcaption, div");
    const style = getComputedStyle(frame);
    const room = frame.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    shrink(box, "formula", box.getBoundingClientRect().width, room);
  }
  for (const table of document.querySelectorAll("table"))
    for (let turn = 0; turn < 8; turn++) {
      const room = table.parentElement.clientWidth;
      if (table.offsetWidth <= room) break;
      shrink(table, "table", table.offsetWidth, room);
    }
  return smallest;
};

/* Everything that sticks out of the text, for the one who prints. */
window.findCut = () => {
  const edge = document.body.getBoundingClientRect().right + 1;
  const boxes = "p, li, pre, td, img, svg, figure, dt, h1, h2, h3, h4, mjx-math, code, .eqno";
  return [...document.querySelectorAll(boxes)]
    .filter((box) => box.getBoundingClientRect().right > edge)
    .map((box) => `${box.closest(".page")?.id}: <${box.tagName.toLowerCase()}> ${box.textContent.trim().slice(0, 60)}`);
};
