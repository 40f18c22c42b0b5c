/* The box "Run this with your numbers": checks values as `aimlib run` does, writes the command.
   The rules are those of aimlib/chapters/parameters.py; tests/test_run_box.py compares the two. */
(() => {
  "use strict";

  const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;

  function parseOne(parameter, text) {
    const kind = parameter.type.replace(/s$/, "");
    let value;
    if (kind === "str") value = text.replace(/^['"]+|['"]+$/g, "");
    else if (kind === "bool") {
      if (!/^(true|false)$/i.test(text)) return undefined;
      value = text.toLowerCase() === "true";
    } else {
      if (!NUMBER.test(text) || /^[+-]*0\d/.test(text)) return undefined;
      value = Number(text);
      if (!Number.isFinite(value) || (kind === "int" && !Number.isInteger(value))) return undefined;
      if (parameter.low !== null && value < parameter.low) return undefined;
      if (parameter.high !== null && value > parameter.high) return undefined;
    }
    if (parameter.choices.length && !parameter.choices.includes(value)) return undefined;
    return value;
  }

  function inner(text) {
    const t = text.trim();
    if (t.startsWith("[") !== t.endsWith("]")) return t;
    return t.startsWith("[") ? t.slice(1, -1) : t;
  }

  function parseList(parameter, text) {
    const values = inner(text).split(",").map((part) => parseOne(parameter, part.trim()));
    return values.includes(undefined) ? undefined : values;
  }

  /* The values of a grid, of which there is mostly one; undefined if any is not allowed. */
  function parseAlternatives(parameter, text) {
    let values;
    if (parameter.type.endsWith("s")) {
      let t = text.trim();
      if (t.startsWith("[[") && t.endsWith("]]")) t = t.slice(1, -1).trim();
      values = t.replaceAll("],", "];").split(";").map((piece) => parseList(parameter, piece));
    } else {
      values = parseList(parameter, text);
    }
    if (values === undefined || values.includes(undefined)) return undefined;
    const distinct = new Set(values.map((value) => JSON.stringify(value)));
    return distinct.size === values.length ? values : undefined;
  }

  function shown(value) {
    return Array.isArray(value) ? value.map(shown).join(",") : String(value);
  }

  function argument(parameter, values) {
    const text = values.map(shown).join(parameter.type.endsWith("s") ? ";" : ",");
    return /^[\w.,+-]+$/.test(text) ? text : `'${text}'`;
  }

  function same(a, b) {
    return JSON.stringify(a) === JSON.stringify(b);
  }

  class Box {
    constructor(section) {
      this.section = section;
      this.card = JSON.parse(section.dataset.card);
      this.code = section.querySelector(".run-box-code code");
      this.note = section.querySelector(".run-box-note");
      this.copy = section.querySelector(".run-box-copy");
      this.reset = section.querySelector(".run-box-reset");
      this.copy.hidden = this.reset.hidden = false;
      section.addEventListener("input", (event) => {
        if (event.target.name === "run-this-preset") this.fill(this.preset());
        this.update();
      });
      this.copy.addEventListener("click", () => this.copyCommand());
      this.reset.addEventListener("click", () => {
        section.querySelector("input[type=radio]").checked = true;
        this.fill("");
        this.update();
      });
      // A browser that comes back to the page may have kept what was typed.
      this.update();
    }

    preset() {
      return this.section.querySelector("input[type=radio]:checked").value;
    }

    field(name) {
      return document.getElementById(`run-this-${name}`);
    }

    base(name) {
      const values = name ? this.card.presets[name].values : {};
      return Object.fromEntries(
        this.card.parameters.map((p) => [p.name, p.name in values ? values[p.name] : p.default]),
      );
    }

    fill(name) {
      for (const [key, value] of Object.entries(this.base(name))) this.field(key).value = shown(value);
    }

    /* The values of all parameters, each a list of alternatives; undefined if one is wrong. */
    values() {
      const found = {};
      let sound = true;
      for (const parameter of this.card.parameters) {
        const field = this.field(parameter.name);
        const values = parseAlternatives(parameter, field.value);
        const error = document.getElementById(`${field.id}-error`);
        const message = values ? "" : `${parameter.name} must be ${parameter.allowed}`;
        if (error.textContent !== message) error.textContent = message;
        field.setAttribute("aria-invalid", String(!values));
        sound = sound && values !== undefined;
        found[parameter.name] = values;
      }
      return sound ? found : undefined;
    }

    update() {
      const values = this.values();
      this.copy.disabled = values === undefined;
      if (values === undefined) {
        this.code.textContent = "";
        this.note.textContent = "No command: a value above is not allowed.";
      } else {
        const runs = Object.values(values).reduce((product, list) => product * list.length, 1);
        this.code.textContent = this.command(values);
        this.note.textContent = runs > 1 ? `A grid of ${runs} runs.` : "";
      }
      this.section.dispatchEvent(new CustomEvent("run-box-change", { detail: values }));
    }

    command(values) {
      const preset = this.preset();
      const base = this.base(preset);
      const words = ["aimlib run", this.card.chapter];
      if (preset) words.push("--preset", preset);
      for (const parameter of this.card.parameters) {
        const chosen = values[parameter.name];
        if (chosen.length === 1 && same(chosen[0], base[parameter.name])) continue;
        words.push("-p", parameter.name, argument(parameter, chosen));
      }
      return words.join(" ");
    }

    async copyCommand() {
      try {
        await navigator.clipboard.writeText(this.code.textContent);
        this.note.textContent = "Copied.";
      } catch {
        // Pages opened from disk may not write to the clipboard: select it for the reader.
        getSelection().selectAllChildren(this.code);
        this.note.textContent = "Selected: copy it with the keyboard.";
      }
    }
  }

  function start() {
    for (const section of document.querySelectorAll(".run-box")) section.runBox = new Box(section);
  }

  window.runBoxRules = { parseAlternatives };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
