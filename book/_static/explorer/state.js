// The parameters of a screen: their ranges, their steps, and how an address carries them.
(function (aim) {
  "use strict";

  const CHANNELS = { softmax: "softmax", hardmax: "hardmax", linear: "linear, with noise" };

  // Parameters of one figure; alpha has its range from the others, see alphaRange
  const PARAMETERS = {
    channel: { label: "Output", choices: CHANNELS, initial: "softmax" },
    rho: { label: "Width ratio", symbol: "ρ", low: 1e-3, high: 10, log: true, initial: 0.5 },
    tokens: { label: "Tokens", symbol: "T", low: 2, high: 6, step: 1, initial: 2 },
    alpha: { label: "Sample complexity", symbol: "α", low: 0, high: 1e4, initial: 0.1 },
    beta: { label: "Inverse temperature", symbol: "β", low: 0.1, high: 10, log: true, initial: 1 },
    tau: { label: "Output noise", symbol: "τ", low: 0, high: 4, step: 0.05, initial: 0.25 },
    delta: { label: "Noise", symbol: "Δ", low: 1e-3, high: 100, log: true, initial: 0.1 },
    log: { label: "Logarithmic axes", flag: true, initial: false },
  };

  // Round values, about equally spaced in the logarithm, so that 0.5 or 0.02 can be met exactly
  function logSteps(low, high) {
    const mantissas = [];
    for (let i = 0; i < 50; i++) mantissas.push(1 + 0.02 * i);
    for (let i = 0; i < 60; i++) mantissas.push(2 + 0.05 * i);
    for (let i = 0; i < 50; i++) mantissas.push(5 + 0.1 * i);
    const steps = [];
    for (let k = Math.floor(Math.log10(low)); k <= Math.log10(high); k++) {
      for (const m of mantissas) {
        const value = Number((m * 10 ** k).toPrecision(3));
        if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) steps.push(value);
      }
    }
    return steps;
  }

  // 1, 2 or 5 times a power of ten, not below the value
  function niceAbove(value) {
    const power = 10 ** Math.floor(Math.log10(value));
    const step = [1, 2, 5, 10].find((m) => m * power >= value * (1 - 1e-9));
    return Number((step * power).toPrecision(3));
  }

  const fewestTokens = (channel) => (channel === "linear" ? 1 : 2);

  // The interesting part of the curve: up to 1.4 times the threshold of exact recovery, or, where
  // there is none, up to a few samples for each unknown
  function interesting(state) {
    const { channel, rho, tokens, tau } = state;
    const kappa = aim.wishart.degreesOfFreedom(rho);
    if (channel === "hardmax") {
      const start = aim.channels.information({ name: "hardmax", tokens }, 1, 1);
      return (2.5 * Math.min(2 * rho, 1)) / start;
    }
    const c = (tokens * (tokens + 1)) / 2 - (channel === "softmax" ? 1 : 0);
    const noisy = channel === "linear" ? 1 + 4 * tau : 1;
    return (1.4 * noisy * kappa) / (2 * c);
  }

  // Range and step of alpha.  A given alpha always fits in.
  function alphaRange(state) {
    const most = Math.max(interesting(state), state.alpha * (state.log ? 1 / 25 : 1.02));
    const step = niceAbove(most / 400);
    const high = Number((step * Math.ceil(most / step - 1e-9)).toPrecision(6));
    if (!state.log) return { low: 0, high, step };
    const top = niceAbove(high * 20);
    return { low: Number((top / 1e4).toPrecision(3)), high: top, step: null };
  }

  function clamp(name, value, state) {
    const { low, high, step } = PARAMETERS[name];
    const least = name === "tokens" ? fewestTokens(state.channel) : low;
    const inside = Math.min(Math.max(value, least), high);
    return name === "tokens" ? Math.round(inside) : step ? Number(inside.toPrecision(6)) : inside;
  }

  // A state from the defaults of a view and whatever an address or a preset says; what it says
  // wrongly is ignored
  function makeState(defaults, given) {
    const state = { keep: [] };
    for (const name of Object.keys(PARAMETERS)) state[name] = PARAMETERS[name].initial;
    Object.assign(state, defaults);
    for (const name of Object.keys(PARAMETERS)) {
      if (!(name in given)) continue;
      const parameter = PARAMETERS[name];
      if (parameter.choices) {
        if (given[name] in parameter.choices) state[name] = given[name];
      } else if (parameter.flag) {
        state[name] = given[name] === true || given[name] === "1";
      } else if (given[name] !== "" && Number.isFinite(Number(given[name]))) {
        state[name] = Number(given[name]);
      }
    }
    for (const name of ["rho", "tokens", "alpha", "beta", "tau", "delta"]) {
      state[name] = clamp(name, state[name], state);
    }
    if (given.keep) state.keep = Array.isArray(given.keep) ? given.keep : readKept(given.keep);
    return state;
  }

  // A kept curve is written channel_rho_tokens_beta_tau, several are joined by "~"
  const KEPT = ["channel", "rho", "tokens", "beta", "tau"];

  function readKept(text) {
    return text
      .split("~")
      .slice(0, 6)
      .map((part) => {
        const values = part.split("_");
        if (values.length !== KEPT.length) return null;
        const state = makeState({}, Object.fromEntries(KEPT.map((name, i) => [name, values[i]])));
        return keptOf(state);
      })
      .filter(Boolean);
  }

  const keptOf = (state) => Object.fromEntries(KEPT.map((name) => [name, state[name]]));

  function toQuery(state, names) {
    const query = new URLSearchParams();
    for (const name of names) {
      if (PARAMETERS[name].flag) {
        if (state[name]) query.set(name, "1");
      } else query.set(name, String(state[name]));
    }
    if (state.keep.length) {
      query.set("keep", state.keep.map((k) => KEPT.map((name) => k[name]).join("_")).join("~"));
    }
    return query.toString();
  }

  const fromQuery = (text) => Object.fromEntries(new URLSearchParams(text));

  const channelOf = ({ channel, tokens, beta, tau }) => ({ name: channel, tokens, beta, tau });

  aim.state = {
    PARAMETERS,
    alphaRange,
    channelOf,
    clamp,
    fewestTokens,
    fromQuery,
    keptOf,
    logSteps,
    makeState,
    toQuery,
  };
})(window.aim);
