/* What a reader would complain about, asked of the page that is open.  Every function returns a list
   of complaints; an empty list is good. */
window.pageChecks = (() => {
  "use strict";
  const article = () => document.querySelector("article, .bd-search-container");
  const all = (selector) => [...article().querySelectorAll(selector)];
  const shown = (box) => box.checkVisibility() && box.getClientRects().length > 0;
  const name = (box) => {
    const near = box.closest("[id]");
    return `${box.tagName.toLowerCase()} near #${near ? near.id : "?"}: ${box.textContent.trim().slice(0, 40)}`;
  };
  const scrolls = (box) => ["auto", "scroll", "hidden"].includes(getComputedStyle(box).overflowX);
  const scroller = (box) => {
    for (let at = box.parentElement; at && at !== document.body; at = at.parentElement)
      if (scrolls(at) && at.tagName !== "ARTICLE") return at;
    return null;
  };

  const pictures = () =>
    all("img").flatMap((image) => {
      if (image.complete && !image.naturalWidth) return [`broken: ${image.src}`];
      return image.alt && image.alt.length >= 20 ? [] : [`without words: ${image.src}`];
    });

  const setTheme = (theme) => {
    document.documentElement.dataset.theme = theme;
  };
  const darkness = () => {
    const ground = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
    const found = ground[0] + ground[1] + ground[2] < 200 ? [] : ["the ground is not dark"];
    for (const picture of all("figure img, .drawing svg"))
      if (!getComputedStyle(picture).filter.includes("invert")) found.push(`glares: ${name(picture)}`);
    return found;
  };

  const overflow = () => {
    const rest = document.documentElement.scrollWidth - innerWidth;
    return rest > 0 ? [`the page is ${rest} px wider than the window`] : [];
  };

  const aspect = () =>
    all("img")
      .filter((image) => shown(image) && image.naturalWidth)
      .filter((image) => {
        const real = image.naturalWidth / image.naturalHeight;
        return Math.abs(image.clientWidth / image.clientHeight / real - 1) > 0.02;
      })
      .map((image) => `distorted: ${image.src}`);

  /* Cut without a cue, or, on a wide screen, cut at all. */
  const cut = (wideScreen) => {
    const complaints = [];
    for (const box of all("mjx-container[display='true'], pre, .pst-scrollable-table-container")) {
      if (!shown(box) || box.scrollWidth - box.clientWidth <= 1) continue;
      const cue = box.matches(".more-right, .more-left") && box.tabIndex === 0;
      if (!cue) complaints.push(`cut without a cue: ${name(box)}`);
      else if (wideScreen && box.matches("mjx-container"))
        complaints.push(`needs a line break (${box.scrollWidth} in ${box.clientWidth} px): ${name(box)}`);
    }
    return complaints;
  };

  /* Inline code, formulas and words stay in their box. */
  const protruding = () =>
    all("p code, li code, td code, p mjx-container, li mjx-container, h1, h2, h3, .admonition-title")
      .filter((box) => shown(box) && !scroller(box))
      .filter((box) => box.getBoundingClientRect().right > article().getBoundingClientRect().right + 1)
      .map((box) => `runs out of the text: ${name(box)}`);

  const margins = (least) =>
    all(":scope > section > p, :scope > section > section > p")
      .filter(shown)
      .filter((box) => {
        const at = box.getBoundingClientRect();
        return at.left < least || at.right > innerWidth - least;
      })
      .slice(0, 1)
      .map((box) => `closer than ${least} px to the edge: ${name(box)}`);

  const numbers = () =>
    all("div.math .eqno").filter((number) => {
      const formula = number.parentElement.querySelector("mjx-math");
      if (!formula || !shown(number)) return false;
      const a = number.getBoundingClientRect();
      const b = number.parentElement.querySelector("mjx-container").getBoundingClientRect();
      const right = Math.min(b.right, formula.getBoundingClientRect().right);
      return right > a.left + 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    }).map((number) => `number over its equation: ${number.textContent}`);

  const formulaSize = () =>
    all("p mjx-container").slice(0, 40).filter((box) => {
      const ratio =
        parseFloat(getComputedStyle(box).fontSize) /
        parseFloat(getComputedStyle(box.parentElement).fontSize);
      return ratio < 0.95 || ratio > 1.12;
    }).map((box) => `formula not of the size of the text: ${name(box)}`);

  /* Status words and whole sentences of a table can be read without scrolling on a phone. */
  const tables = () =>
    all("td .status, table.cards td")
      .filter(shown)
      .filter((box) => box.getBoundingClientRect().right > innerWidth || scrolledAway(box))
      .map((box) => `out of sight in its table: ${name(box)}`);
  const scrolledAway = (box) => {
    const frame = box.closest(".pst-scrollable-table-container");
    return frame && box.getBoundingClientRect().right > frame.getBoundingClientRect().right + 1;
  };
  const statuses = () => {
    const plain = getComputedStyle(article()).color;
    return all("td .status")
      .filter((word) => getComputedStyle(word).color === plain)
      .map((word) => `status without a colour: ${name(word)}`);
  };

  /* Panels side by side are stacked where the window is narrow. */
  const panels = () =>
    all("picture img")
      .filter((image) => shown(image) && !image.currentSrc.includes("-stacked"))
      .map((image) => `panels not stacked: ${image.currentSrc}`);

  /* A statement that ends in the middle of a sentence stands partly outside its box. */
  const statements = () =>
    all("div.proof.definition, div.proof.proposition, div.proof.theorem, div.proof.lemma, div.proof.corollary")
      .filter((box) => {
        const content = box.querySelector("section");
        const last = content && content.lastElementChild;
        return !last || (last.matches("p") && !/[.!?)]["’”]?$/.test(textOf(last)));
      })
      .map((box) => `ends in the middle of a sentence: ${name(box)}`);
  const textOf = (box) => {
    const last = box.lastChild;
    if (last && last.nodeType === Node.ELEMENT_NODE && last.querySelector("mjx-container")) {
      const tex = MathJax.startup.document.getMathItemsWithin(last);
      const source = tex.length ? tex[tex.length - 1].math.trim() : "";
      return /[.!?]$/.test(source) ? "." : source;
    }
    return box.textContent.trim();
  };

  const currentInView = () => {
    const bar = document.querySelector(".bd-sidebar-primary");
    const link = bar && bar.querySelector("a[aria-current='page']");
    if (!link) return ["the sidebar does not mark the current page"];
    const at = link.getBoundingClientRect();
    const seen = at.top >= 0 && at.bottom <= innerHeight;
    return seen ? [] : [`the current page is out of view in the sidebar: ${at.top}`];
  };

  /* Formulas are replaced by one word of the same size: their inside is MathJax's, tested once on a
     page of its own, and has a hundred times more elements than the page. */
  const simplifyFormulas = () => {
    const boxes = [...document.querySelectorAll("mjx-container")];
    const widthOf = (box) => box.querySelector("mjx-math")?.getBoundingClientRect().width ?? 20;
    const widths = boxes.map(widthOf); // all at once: reading after each change would lay out anew
    boxes.forEach((box, index) => {
      box.innerHTML = `<span style="display:inline-block;width:${widths[index]}px">f</span>`;
    });
  };
  const axeComplaints = async (options) => {
    const result = await axe.run(document, { resultTypes: ["violations"], ...options });
    return result.violations.flatMap((rule) =>
      rule.nodes.slice(0, 5).map((node) => `${rule.id}: ${node.target.join(" ")}: ${node.html.slice(0, 120)}`)
    );
  };

  const layout = () => {
    const wide = innerWidth >= 1280;
    const phone = innerWidth <= 600;
    const found = [overflow(), aspect(), cut(wide), protruding(), numbers(), tables()];
    if (phone) found.push(margins(12), panels());
    else found.push(formulaSize());
    return found.flat();
  };
  return { layout, pictures, setTheme, darkness, statuses, statements, currentInView, simplifyFormulas, axeComplaints };
})();
