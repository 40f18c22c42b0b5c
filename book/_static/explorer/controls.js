// The inputs: for each number a slider and a field for exact values, both with a label.
(function (aim) {
  "use strict";

  let counter = 0;

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "class") element.className = value;
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  const nearest = (steps, value) =>
    steps.reduce((best, step, i) => (Math.abs(step - value) < Math.abs(steps[best] - value) ? i : best), 0);

  // A control is {element, write(state, range)}; it calls change(name, value, text) by itself,
  // where text is what a reader should be told about a value that was not taken as typed.
  function number(name, change) {
    const { label, symbol } = aim.state.PARAMETERS[name];
    const id = `aim-${name}-${counter++}`;
    const slider = make("input", { type: "range", id });
    const field = make("input", { type: "number", step: "any", "aria-label": `${label} ${symbol}, exact value` });
    let steps = null;
    let bounds = null;

    slider.addEventListener("input", () => {
      change(name, steps ? steps[Number(slider.value)] : Number(slider.value));
    });
    field.addEventListener("change", () => {
      const typed = Number(field.value);
      const known = field.value !== "" && Number.isFinite(typed);
      const value = known ? Math.min(Math.max(typed, bounds.low), bounds.high) : null;
      const text =
        value === typed
          ? ""
          : `${label} ${symbol} must be a number from ${bounds.low} to ${bounds.high}. `;
      change(name, value, text);
    });

    function write(state, range) {
      const parameter = aim.state.PARAMETERS[name];
      const scale = name === "alpha" ? range : parameter;
      const low = name === "tokens" ? aim.state.fewestTokens(state.channel) : scale.low;
      const value = state[name];
      bounds = { low: name === "tokens" ? low : parameter.low, high: parameter.high };
      [field.min, field.max] = [bounds.low, bounds.high];
      if (document.activeElement !== field || Number(field.value) !== value) field.value = value;
      if (scale.log || (name === "alpha" && state.log)) {
        steps = aim.state.logSteps(low, scale.high);
        [slider.min, slider.max, slider.step] = [0, steps.length - 1, 1];
        slider.value = nearest(steps, value);
      } else {
        steps = null;
        [slider.min, slider.max, slider.step] = [low, scale.high, scale.step];
        slider.value = value;
      }
      slider.setAttribute("aria-valuetext", String(value));
    }

    const text = make("label", { for: id }, `${label} `, make("i", {}, symbol));
    return { element: make("div", { class: "aim-control" }, text, slider, field), write };
  }

  function choice(name, change, allowed) {
    const { label, choices } = aim.state.PARAMETERS[name];
    const id = `aim-${name}-${counter++}`;
    const select = make("select", { id, onchange: () => change(name, select.value) });
    for (const value of allowed) select.append(make("option", { value }, choices[value]));
    return {
      element: make("div", { class: "aim-control" }, make("label", { for: id }, label), select),
      write: (state) => {
        select.value = state[name];
      },
    };
  }

  function flag(name, change) {
    const id = `aim-${name}-${counter++}`;
    const box = make("input", { type: "checkbox", id, onchange: () => change(name, box.checked) });
    const label = make("label", { for: id }, aim.state.PARAMETERS[name].label);
    return {
      element: make("div", { class: "aim-control aim-flag" }, box, label),
      write: (state) => {
        box.checked = state[name];
      },
    };
  }

  function control(name, change, allowed) {
    const parameter = aim.state.PARAMETERS[name];
    if (parameter.choices) return choice(name, change, allowed || Object.keys(parameter.choices));
    return parameter.flag ? flag(name, change) : number(name, change);
  }

  aim.controls = { control, make };
})(window.aim);
