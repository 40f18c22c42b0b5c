// Puts one explorer together in every section that the directive has left: controls, panels,
// words, numbers, Python, and an address that brings the same screen back.
(function (aim) {
  "use strict";

  const { make } = aim.controls;

  const four = [0.1, 1, 2].map((rho) => ({ channel: "softmax", rho, tokens: 2, beta: 1, tau: 0.25 }));
  const fourHard = four.map((kept) => ({ ...kept, channel: "hardmax" }));
  const PRESETS = {
    softmax: ["Softmax, four widths", { channel: "softmax", rho: 0.5, tokens: 2, alpha: 0.1, keep: four }],
    hardmax: ["Hardmax, four widths", { channel: "hardmax", rho: 0.5, tokens: 2, alpha: 0.4, keep: fourHard }],
    power: ["Hardmax, power law", { channel: "hardmax", rho: 0.5, tokens: 2, alpha: 6.4, log: true }],
    three: ["Softmax, three tokens", { channel: "softmax", rho: 0.5, tokens: 3, alpha: 0.04 }],
    steep: ["Softmax, β = 8", { channel: "softmax", rho: 0.5, tokens: 2, alpha: 0.1, beta: 8 }],
    narrow: ["Small width", { channel: "hardmax", rho: 0.02, tokens: 2, alpha: 0.01 }],
    narrowSoft: ["Small width, softmax", { channel: "softmax", rho: 0.02, tokens: 2, alpha: 0.008 }],
    quadratic: ["Quadratic network with noise", { channel: "linear", rho: 0.5, tokens: 1, alpha: 0.2, tau: 0.25 }],
    two: ["Two bulks", { rho: 0.1, delta: 0.05 }],
    merging: ["Bulks about to merge", { rho: 0.2, delta: 0.35 }],
    edge: ["Hard edge, ρ = 1", { rho: 1, delta: 0.01 }],
  };

  const VIEWS = {
    all: {
      controls: ["channel", "rho", "tokens", "alpha", "beta", "tau", "log"],
      panels: ["error", "generalization", "spectrum", "denoiser", "iterations", "rescaled"],
      defaults: {},
      presets: ["softmax", "hardmax", "power", "three", "narrow", "quadratic"],
    },
    softmax: {
      controls: ["rho", "tokens", "alpha", "beta", "log"],
      panels: ["error", "generalization"],
      defaults: { channel: "softmax" },
      presets: ["softmax", "three", "steep"],
    },
    hardmax: {
      controls: ["rho", "tokens", "alpha", "log"],
      panels: ["error", "generalization"],
      defaults: { channel: "hardmax", alpha: 0.4 },
      presets: ["hardmax", "power"],
    },
    priors: {
      controls: ["rho", "delta"],
      panels: ["spectrum", "denoiser", "mmse"],
      defaults: {},
      presets: ["two", "merging", "edge"],
    },
    small_width: {
      controls: ["channel", "rho", "tokens", "alpha"],
      channels: ["softmax", "hardmax"],
      panels: ["rescaled", "spectrum"],
      defaults: { channel: "hardmax", rho: 0.02, alpha: 0.01 },
      presets: ["narrow", "narrowSoft"],
    },
    amp: {
      controls: ["channel", "rho", "tokens", "alpha", "tau", "log"],
      panels: ["error", "iterations", "spectrum", "denoiser"],
      defaults: { channel: "hardmax", alpha: 0.4 },
      presets: ["softmax", "hardmax", "quadratic"],
    },
  };

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // pages opened from disk, or without permission
      const area = make("textarea", { readonly: true, class: "aim-offscreen" });
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }

  function copyButton(label, text) {
    const button = make("button", { type: "button" }, label);
    button.addEventListener("click", async () => {
      await copy(text());
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = label), 1500);
    });
    return button;
  }

  class Explorer {
    constructor(section) {
      this.section = section;
      this.view = VIEWS[section.dataset.view];
      this.recorded = JSON.parse(section.querySelector("script").textContent);
      this.defaults = this.view.defaults;
      this.start(this.read());
      this.build();
      this.render();
    }

    // Only what this view has a control for is taken from the address; the channel of a view
    // about one channel stays
    read() {
      const given = aim.state.fromQuery(window.location.search);
      const names = [...this.view.controls, "keep"];
      const taken = Object.fromEntries(Object.entries(given).filter(([name]) => names.includes(name)));
      if (this.view.channels && !this.view.channels.includes(taken.channel)) delete taken.channel;
      return taken;
    }

    start(given) {
      this.state = aim.state.makeState(this.defaults, given);
      this.range = aim.state.alphaRange(this.state);
    }

    build() {
      this.section.textContent = "";
      const title = make("p", { class: "aim-title" }, this.section.getAttribute("aria-label"));
      const change = (name, value, text) => this.change(name, value, text);
      this.controls = Object.fromEntries(
        this.view.controls.map((name) => [name, aim.controls.control(name, change, this.view.channels)]),
      );
      const form = make("form", { class: "aim-controls", "aria-label": "Parameters" });
      form.addEventListener("submit", (event) => event.preventDefault());
      form.append(...Object.values(this.controls).map((control) => control.element));
      this.note = make("p", { class: "aim-note" });
      this.status = make("p", { class: "aim-status", role: "status", "aria-live": "polite" });
      if (this.section.dataset.view === "all") title.hidden = true; // the page has this heading
      this.section.append(title, this.buttons(), form, this.note, this.status, this.figures(), this.details());
      const bar = document.querySelector(".bd-header-article");
      const measure = () => this.section.style.setProperty("--aim-top", `${bar.offsetHeight}px`);
      if (bar) new ResizeObserver(measure).observe(bar);
      // the switch of the theme, and a change of the system's preference
      const repaint = () => this.paintAll();
      new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    }

    buttons() {
      const button = (label, action) => make("button", { type: "button", onclick: action }, label);
      const row = make("div", { class: "aim-buttons", role: "group", "aria-label": "Presets and kept curves" });
      for (const key of this.view.presets) {
        const [label, given] = PRESETS[key];
        row.append(button(label, () => this.set(given)));
      }
      row.append(button("Reset", () => this.set({})));
      if (!this.view.controls.includes("alpha")) return row;
      this.forget = button("Forget kept curves", () => this.set({ ...this.state, keep: [] }));
      row.append(button("Keep this curve", () => this.keep()), this.forget);
      return row;
    }

    figures() {
      const grid = make("div", { class: "aim-panels" });
      this.charts = this.view.panels.map((name) => {
        const title = make("p", { class: "aim-panel-title" });
        const plot = make("div", { class: "aim-plot", role: "img" });
        const legend = make("ul", { class: "aim-legend" });
        grid.append(make("div", { class: "aim-panel", "data-panel": name }, title, plot, legend));
        return { name, title, plot, legend, chart: new aim.Chart(plot, (value, what) => this.drag(value, what)) };
      });
      return grid;
    }

    details() {
      this.table = make("tbody", {});
      this.code = make("code", {});
      const numbers = make(
        "details", {},
        make("summary", {}, "Numbers of this screen"),
        make("table", { class: "aim-numbers" }, this.table),
      );
      // scrolls sideways, so it must be reachable by keyboard
      const pre = make("pre", { tabindex: "0", role: "region", "aria-label": "Python code of this screen" }, this.code);
      const python = make(
        "details", {},
        make("summary", {}, "This screen in Python"),
        make("p", {}, "Runs wherever aimlib and matplotlib are installed."),
        copyButton("Copy code", () => this.code.textContent),
        pre,
      );
      this.link = make("a", {}, "Open in the explorer");
      const share = make("div", { class: "aim-buttons" }, copyButton("Copy link to this screen", () => this.address()));
      if (this.section.dataset.view !== "all") share.append(this.link);
      return make("div", {}, numbers, python, share);
    }

    // ----- changes ---------------------------------------------------------------------------

    change(name, value, text) {
      this.message = text || "";
      if (value !== null) {
        this.state[name] = value;
        for (const other of ["tokens", name]) {
          if (typeof this.state[other] === "number") {
            this.state[other] = aim.state.clamp(other, this.state[other], this.state);
          }
        }
        // the range of alpha follows the other parameters; alpha itself only widens it
        if (name !== "alpha" || this.state.alpha > this.range.high) {
          this.range = aim.state.alphaRange(this.state);
        }
      }
      this.touched = true;
      this.schedule();
    }

    drag(value, what) {
      const name = what === "rescaled" ? "alpha" : what;
      const scaled = what === "rescaled" ? value * this.state.rho : value;
      const step = this.range.step;
      const round = what === "alpha" && step ? Math.round(scaled / step) * step : scaled;
      this.change(name, Number(round.toPrecision(3)));
    }

    // A preset keeps what it does not mention at the defaults
    set(given) {
      this.message = "";
      this.touched = true;
      this.start({ ...given });
      this.schedule();
    }

    keep() {
      const kept = aim.state.keptOf(this.state);
      const others = this.state.keep.filter((other) => JSON.stringify(other) !== JSON.stringify(kept));
      this.set({ ...this.state, keep: [...others, kept].slice(-6) });
    }

    schedule() {
      this.section.dataset.ready = "false";
      if (this.waiting) return;
      this.waiting = true;
      requestAnimationFrame(() => {
        this.waiting = false;
        this.render();
      });
    }

    // ----- the screen ------------------------------------------------------------------------

    render() {
      const { state } = this;
      this.screen = aim.panels.compute(state, this.range, this.recorded);
      if (this.view.controls.includes("delta")) this.screen.noise = state.delta;
      this.panels = this.view.panels.map((name) => ({ name, panel: aim.panels.all[name](this.screen) }));
      for (const [name, control] of Object.entries(this.controls)) control.write(state, this.range, name);
      if (this.controls.beta) this.controls.beta.element.hidden = state.channel !== "softmax";
      if (this.controls.tau) this.controls.tau.element.hidden = state.channel !== "linear";
      if (this.forget) this.forget.disabled = state.keep.length === 0;
      this.paintAll();
      clearTimeout(this.later);
      // words, table and address need not follow every step of a drag, and would speak too often
      if (this.touched) this.later = setTimeout(() => this.finish(), 150);
      else this.finish();
    }

    paintAll() {
      this.charts.forEach((parts, i) => this.paint(parts, this.panels[i].panel));
    }

    paint({ title, plot, legend, chart }, panel) {
      title.textContent = panel.title;
      plot.setAttribute("aria-label", panel.words);
      chart.draw(panel);
      legend.textContent = "";
      for (const series of panel.empty ? [] : chart.series) {
        const filled = series.rank % 2 ? " aim-filled" : "";
        const key = make("span", { class: `aim-key aim-${series.role}${filled}`, "aria-hidden": "true" });
        key.style.color = series.colour;
        legend.append(make("li", {}, key, series.label));
      }
    }

    finish() {
      this.status.textContent = (this.message || "") + aim.panels.summary(this.screen);
      this.table.textContent = "";
      for (const [name, label, value] of aim.panels.numbers(this.screen)) {
        const cell = make("td", { "data-name": name, "data-value": value }, aim.panels.show(value, 6));
        this.table.append(make("tr", {}, make("th", { scope: "row" }, label), cell));
      }
      this.code.textContent = aim.snippet(this.screen, this.panels);
      this.hint();
      const query = aim.state.toQuery(this.state, this.view.controls);
      const withChannel = aim.state.toQuery(this.state, VIEWS.all.controls);
      this.link.href = `explorer.html?${withChannel}`;
      if (this.touched) {
        const { pathname, hash } = window.location;
        window.history.replaceState(null, "", `${pathname}?${query}${hash}`);
      }
      this.section.dataset.ready = "true";
    }

    address() {
      const { origin, protocol, pathname } = window.location;
      const base = protocol === "file:" ? `file://${pathname}` : origin + pathname;
      return `${base}?${aim.state.toQuery(this.state, this.view.controls)}`;
    }

    // Widths at which runs were recorded for this channel and number of tokens
    hint() {
      this.note.textContent = "";
      if (!this.view.controls.includes("alpha") || !this.recorded.length) return;
      const { channel, tokens } = this.state;
      const entries = this.recorded.filter((e) => e.channel === channel && e.tokens === tokens);
      const widths = [...new Set(entries.map((e) => e.rho))].sort((a, b) => a - b);
      if (!widths.length) {
        this.note.textContent = `No runs were recorded for ${channel} with T = ${tokens}.`;
        return;
      }
      this.note.append("Runs were recorded at ρ = ");
      for (const rho of widths) {
        const set = () => this.change("rho", rho);
        this.note.append(make("button", { type: "button", onclick: set, "aria-label": `Set ρ to ${rho}` }, String(rho)), " ");
      }
    }
  }

  function boot() {
    aim.explorers = [...document.querySelectorAll("section.aim-explorer")].map((s) => new Explorer(s));
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", boot);
  else boot();
})(window.aim);
