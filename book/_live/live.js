/* Run the cells of a notebook page in the page, with the values of its box: see serve.py.
   Thebe is loaded when the reader asks for it, from this server. */
(() => {
  "use strict";

  const settings = JSON.parse(document.getElementById("live-settings").textContent);
  const notebook = settings.page.startsWith("notebooks/") ? settings.page : null;

  function load(tag, attributes) {
    return new Promise((resolve, reject) => {
      const element = Object.assign(document.createElement(tag), attributes);
      element.onload = resolve;
      element.onerror = () => reject(new Error(`${element.src || element.href} does not load`));
      document.head.append(element);
    });
  }

  /* Mark code and output of every cell, in pairs; a caption stays where it is. */
  function mark() {
    for (const cell of document.querySelectorAll("div.cell")) {
      const code = cell.querySelector(".cell_input pre");
      if (!code) continue;
      let output = cell.querySelector(".cell_output");
      if (!output) {
        output = document.createElement("div");
        output.className = "cell_output";
        cell.append(output);
      }
      const place = document.createElement("div");
      const caption = output.querySelector("figcaption");
      const others = [...output.childNodes].filter((node) => !caption || !node.contains(caption));
      place.append(...others);
      if (caption) {
        const rest = [...caption.parentElement.childNodes].filter((node) => node !== caption);
        place.append(...rest);
        caption.before(place);
      } else {
        output.append(place);
      }
      code.dataset.liveCode = "";
      place.dataset.liveOutput = "";
    }
  }

  function literal(parameter, value) {
    if (Array.isArray(value)) return `[${value.map((v) => literal(parameter, v)).join(", ")}]`;
    if (typeof value === "boolean") return value ? "True" : "False";
    if (typeof value === "string") return JSON.stringify(value);
    const text = String(value);
    return parameter.type.startsWith("float") && /^-?\d+$/.test(text) ? `${text}.0` : text;
  }

  class Live {
    constructor(box) {
      this.box = box;
      this.note = box.note;
      this.button = document.createElement("button");
      this.button.type = "button";
      this.button.className = "run-box-live";
      this.button.textContent = "Run in this page";
      box.copy.before(this.button);
      this.button.addEventListener("click", () => this.run());
    }

    say(text) {
      this.note.textContent = text;
    }

    async connect() {
      if (this.thebe) return this.thebe;
      this.say("Loading the editor and starting a kernel …");
      mark();
      await load("link", { rel: "stylesheet", href: "/live/thebe/thebe.css" });
      await load("script", { src: "/live/thebe/index.js" });
      this.thebe = await window.thebe.bootstrap({
        useBinder: false,
        requestKernel: true,
        mountStatusWidget: false,
        mountActivateWidget: false,
        mountRunAllButton: false,
        mountRestartAllButton: false,
        mountRestartButton: false,
        codeMirrorConfig: { theme: document.documentElement.dataset.theme === "dark" ? "darcula" : "idea" },
        selector: "[data-live-code]",
        outputSelector: "[data-live-output]",
        kernelOptions: { path: `/${notebook}.ipynb`, kernelName: "python3" },
        serverSettings: { baseUrl: location.origin, token: settings.token, appendToken: true },
        // Mathematics in outputs is set by the MathJax of the page.
        mathjaxUrl: "",
        mathjaxConfig: "",
      });
      for (const editor of document.querySelectorAll(".thebe-input")) {
        const area = editor.querySelector("textarea");
        if (area) area.setAttribute("aria-label", "code of this cell");
      }
      return this.thebe;
    }

    /* Write the values of the box into the cell of parameters, in the editor and for the kernel. */
    write(values) {
      const lines = this.box.card.parameters.map(
        (parameter) => `${parameter.name} = ${literal(parameter, values[parameter.name][0])}`,
      );
      const editors = [...document.querySelectorAll(".thebe-input .CodeMirror")];
      const first = this.box.card.parameters[0].name;
      const cell = editors.find((e) => e.CodeMirror.getValue().startsWith(`${first} = `));
      cell.CodeMirror.setValue(lines.join("\n"));
    }

    async run() {
      const values = this.box.values();
      if (values === undefined || Object.values(values).some((list) => list.length > 1)) {
        this.say("One allowed value of each parameter runs in the page; a grid needs the command.");
        return;
      }
      this.button.disabled = true;
      const started = performance.now();
      try {
        const again = Boolean(this.thebe);
        const { notebook: cells, session } = await this.connect();
        this.write(values);
        this.say("Running all cells …");
        // A fresh start, so that a page run twice shows what a notebook run once would.
        if (again) await session.kernel.restart();
        const found = await cells.executeAll(true);
        const outputs = [...document.querySelectorAll("[data-live-output]")];
        if (window.MathJax?.typesetPromise) await window.MathJax.typesetPromise(outputs);
        const failed = found.some((one) => one === null || one.error);
        const seconds = ((performance.now() - started) / 1000).toFixed(0);
        this.say(failed ? "A cell failed: see below." : `All cells ran, in ${seconds} s.`);
        this.box.section.dataset.live = failed ? "failed" : "done";
      } catch (error) {
        this.say(`It did not run: ${error.message}`);
        this.box.section.dataset.live = "failed";
      }
      this.button.disabled = false;
    }
  }

  function start() {
    const section = document.querySelector(".run-box");
    if (!section || !section.runBox) return;
    if (notebook) {
      new Live(section.runBox);
      return;
    }
    const link = document.createElement("a");
    link.href = `/book/notebooks/${section.runBox.card.chapter}.html#run-this`;
    link.textContent = "Run it in the page of its notebook.";
    section.querySelector(".run-box-needs").prepend(link, " ");
  }

  if (document.readyState === "complete") start();
  else window.addEventListener("load", start);
})();
