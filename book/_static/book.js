/* What the pages do beyond the theme: sidebars that close after a choice, the current page in view,
   edges that show where something wide goes on, previews of what a link leads to, and search
   excerpts.  Everything works from disk, without a server. */
(() => {
  "use strict";
  const root = document.documentElement.dataset.content_root || "";
  const ready = (run) =>
    document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", run) : run();

  // ---- Sidebars --------------------------------------------------------------------------------
  // The theme moves a sidebar into a dialog on a narrow screen; a link within the page would leave
  // the dialog open over its target.
  const closeSidebarsOnChoice = () => {
    for (const dialog of document.querySelectorAll("dialog[id$='sidebar-modal']"))
      dialog.addEventListener("click", (event) => {
        if (event.target.closest("a[href]")) dialog.close();
      });
  };

  const showCurrentPage = () => {
    const sidebar = document.querySelector(".bd-sidebar-primary");
    const current = sidebar && sidebar.querySelector("a.current[href='#'], li.current.active > a");
    const all = sidebar ? [...sidebar.querySelectorAll("a.current")] : [];
    const link = all.at(-1) || current;
    if (!link || !sidebar.scrollHeight) return;
    link.setAttribute("aria-current", "page");
    const [at, frame] = [link.getBoundingClientRect(), sidebar.getBoundingClientRect()];
    if (at.top < frame.top || at.bottom > Math.min(frame.bottom, innerHeight) - 8)
      sidebar.scrollTop += at.top - frame.top - sidebar.clientHeight / 3;
  };

  const nameButtons = () => {
    const names = { ".primary-toggle": "Menu", ".secondary-toggle": "Contents of this page" };
    for (const [selector, name] of Object.entries(names))
      for (const button of document.querySelectorAll(selector))
        button.setAttribute("aria-label", name);
  };

  // ---- Wide things -----------------------------------------------------------------------------
  const WIDE =
    "mjx-container[display='true'], .pst-scrollable-table-container, " +
    "article pre, .cell_output .output, article div.drawing";

  const markEdges = (box) => {
    const rest = box.scrollWidth - box.clientWidth;
    const wide = rest > 1 && getComputedStyle(box).overflowX !== "visible";
    box.classList.toggle("wide", wide);
    box.classList.toggle("more-left", wide && box.scrollLeft > 1);
    box.classList.toggle("more-right", wide && box.scrollLeft < rest - 1);
    if (wide) box.tabIndex = 0;
    else if (box.tabIndex === 0 && box.dataset.edges) box.removeAttribute("tabindex");
  };

  let sizes = null;
  const watchEdges = (scope) => {
    sizes ||= new ResizeObserver((entries) => {
      for (const { target } of entries)
        for (const box of [target, target.parentElement]) if (box?.dataset.edges) markEdges(box);
    });
    for (const box of scope.querySelectorAll(WIDE)) {
      if (box.dataset.edges) continue;
      box.dataset.edges = "watched";
      box.addEventListener("scroll", () => markEdges(box), { passive: true });
      sizes.observe(box);
      // A table may grow, when fonts or formulas arrive, while its frame keeps its size.
      for (const table of box.querySelectorAll(":scope > table")) sizes.observe(table);
    }
  };

  // The natural width of every displayed equation, in its own em: the style sheet shrinks a wide one
  // a little on a phone and to the paper in print.
  const measureEquations = (scope) => {
    for (const box of scope.querySelectorAll("div.math mjx-container[display='true']")) {
      const inner = box.querySelector("mjx-math, svg");
      if (!inner) continue;
      const size = parseFloat(getComputedStyle(box).fontSize);
      const width = Math.max(inner.getBoundingClientRect().width, inner.scrollWidth);
      if (width) box.parentElement.style.setProperty("--natural", (width / size + 0.2).toFixed(2));
    }
  };

  const typeset = () =>
    window.MathJax && MathJax.startup && MathJax.startup.promise
      ? MathJax.startup.promise
      : Promise.resolve();

  // A table that holds sentences becomes one card a row on a narrow screen.
  const LONG = 24;
  const frameTables = () => {
    for (const table of document.querySelectorAll("article table"))
      if (!table.closest(".pst-scrollable-table-container")) {
        const frame = document.createElement("div");
        frame.className = "pst-scrollable-table-container";
        table.replaceWith(frame);
        frame.append(table);
      }
  };
  const makeCards = () => {
    for (const table of document.querySelectorAll("article table")) {
      const heads = [...table.querySelectorAll("thead th")].map((head) =>
        head.querySelector(".math, mjx-container") ? "" : head.textContent.trim()
      );
      const cells = [...table.querySelectorAll("tbody td")];
      if (!heads.length || !cells.some((cell) => cell.textContent.trim().length > LONG)) continue;
      table.classList.add("cards");
      for (const cell of cells) {
        const head = heads[cell.cellIndex];
        if (head && head !== "row" && cell.textContent.trim()) cell.dataset.head = head;
      }
    }
  };

  // ---- Previews --------------------------------------------------------------------------------
  const PREVIEWED = "article a.reference.internal[href*='#'], article a.internal[href*='#']";
  let card = null;
  let shownFor = null;
  let timer = 0;

  const load = (name) =>
    new Promise((done, fail) => {
      const script = document.createElement("script");
      script.src = `${root}_static/${name}`;
      script.onload = done;
      script.onerror = fail;
      document.head.append(script);
    });
  let loading = null;
  const previews = async () => {
    loading ||= load("previews.js");
    await loading;
    return window.BOOK_PREVIEWS || {};
  };

  const keyOf = (link) => {
    const base = new URL(root || "./", location.href).href;
    const target = new URL(link.getAttribute("href"), location.href);
    if (!target.href.startsWith(base)) return "";
    return target.href.slice(base.length).replace(/\?[^#]*/, "");
  };

  const hide = () => {
    clearTimeout(timer);
    if (card) card.hidden = true;
    if (shownFor) shownFor.removeAttribute("aria-describedby");
    shownFor = null;
  };

  const place = (link) => {
    const at = link.getBoundingClientRect();
    const margin = 8;
    const width = Math.min(680, innerWidth - 2 * margin);
    card.style.maxWidth = `${width}px`;
    card.style.left = "0px";
    const box = card.getBoundingClientRect();
    const left = Math.min(Math.max(at.left, margin), innerWidth - box.width - margin);
    const below = at.bottom + 6;
    const top = below + box.height < innerHeight ? below : Math.max(margin, at.top - box.height - 6);
    card.style.left = `${left}px`;
    card.style.top = `${top}px`;
  };

  const show = async (link) => {
    const content = (await previews())[keyOf(link)];
    if (!content || shownFor === link) return;
    if (!link.matches(":hover, :focus")) return;
    if (!card) {
      card = document.createElement("div");
      card.id = "preview";
      card.className = "bd-article preview";
      card.setAttribute("role", "tooltip");
      card.addEventListener("mouseleave", hide);
      card.addEventListener("mouseenter", () => clearTimeout(timer));
      (document.querySelector("main") || document.body).append(card);
    }
    shownFor = link;
    card.innerHTML = content.replaceAll("{root}", root);
    card.hidden = false;
    link.setAttribute("aria-describedby", card.id);
    if (window.MathJax && MathJax.typesetPromise) await MathJax.typesetPromise([card]);
    measureEquations(card);
    if (shownFor === link) place(link);
  };

  const offerPreviews = () => {
    const later = (link, wait) => {
      clearTimeout(timer);
      timer = setTimeout(() => show(link), wait);
    };
    const over = (event) => event.target.closest && event.target.closest(PREVIEWED);
    document.addEventListener("mouseover", (event) => {
      const link = over(event);
      if (link && link !== shownFor) later(link, 200);
    });
    document.addEventListener("mouseout", (event) => {
      if (!over(event)) return;
      clearTimeout(timer);
      timer = setTimeout(hide, 300);
    });
    document.addEventListener("focusin", (event) => {
      const link = over(event);
      if (link && link.matches(":focus-visible")) later(link, 0);
      else if (shownFor && !(card && card.contains(event.target))) hide();
    });
    document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
    // The focus itself scrolls its link into view: its preview goes along.
    const follow = () => {
      if (shownFor && shownFor.matches(":focus")) place(shownFor);
      else if (shownFor) hide();
    };
    document.addEventListener("scroll", follow, { passive: true });
  };

  // ---- Search ----------------------------------------------------------------------------------
  const excerpt = (text, words) => {
    const lower = text.toLowerCase();
    const places = words.map((word) => lower.indexOf(word)).filter((place) => place >= 0);
    if (!places.length) return null;
    const from = Math.max(0, Math.min(...places) - 100);
    const start = from ? text.indexOf(" ", from) + 1 : 0;
    const paragraph = document.createElement("p");
    paragraph.className = "context";
    paragraph.textContent =
      (from ? "… " : "") + text.slice(start, start + 240).replace(/\s+\S*$/, "") + " …";
    return paragraph;
  };

  const completeResult = (item, words) => {
    const link = item.querySelector("a");
    if (!link || item.dataset.complete) return;
    item.dataset.complete = "yes";
    const title = window.BOOK_TITLES[link.textContent];
    if (title) link.textContent = title;
    const page = link.getAttribute("href").replace(/\.html.*$/, "");
    const text = window.BOOK_WORDS[page];
    const found = text && excerpt(text, words);
    if (found) item.append(found);
  };

  const explainResults = async () => {
    const results = document.getElementById("search-results");
    const query = new URLSearchParams(location.search).get("q");
    if (!results || !query) return;
    await load("search-text.js");
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const complete = () =>
      results.querySelectorAll("ul.search > li").forEach((item) => completeResult(item, words));
    new MutationObserver(complete).observe(results, { childList: true, subtree: true });
    complete();
  };

  ready(() => {
    closeSidebarsOnChoice();
    showCurrentPage();
    nameButtons();
    frameTables();
    makeCards();
    offerPreviews();
    explainResults();
    watchEdges(document);
    addEventListener("load", () =>
      typeset().then(() => {
        measureEquations(document);
        watchEdges(document);
        document.documentElement.dataset.typeset = "yes";
      })
    );
  });
})();
