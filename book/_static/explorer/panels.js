// What each figure shows, as plain data: series, marks and words.  Nothing here draws.
//
// A panel is a function of the computed screen.  Its series are {label, role, x, y, error?}; the
// role decides colour and dash: "now" is the curve of the current parameters, "kept" one that the
// reader has kept, "limit" a limit or reference, "runs" recorded points.
(function (aim) {
  "use strict";

  const POINTS = 201; // of every curve over alpha
  const ITERATIONS = 20;
  const SMALLEST_NOISE = 1e-12; // stands for zero, where S itself is seen
  const BULK_POINTS = 121;

  const linspace = (low, high, n) =>
    Array.from({ length: n }, (_, i) => low + ((high - low) * i) / (n - 1));
  const geomspace = (low, high, n) =>
    linspace(Math.log(low), Math.log(high), n).map((value) => Math.exp(value));

  function show(value, digits) {
    if (value === Infinity) return "∞";
    if (value === 0) return "0";
    const size = Math.abs(value);
    const text = Number(value.toPrecision(digits || 4));
    if (size >= 1e-4 && size < 1e6) return String(text).replace("-", "−");
    const [mantissa, exponent] = value.toExponential(2).split("e");
    return `${Number(mantissa)}·10^${Number(exponent)}`.replace(/-/g, "−");
  }

  function nameOf(kept, state) {
    const parts = [`ρ = ${kept.rho}`];
    if (kept.channel !== state.channel) parts.unshift(kept.channel);
    if (kept.tokens !== state.tokens) parts.push(`T = ${kept.tokens}`);
    if (kept.channel === "softmax" && kept.beta !== state.beta) parts.push(`β = ${kept.beta}`);
    if (kept.channel === "linear" && kept.tau !== state.tau) parts.push(`τ = ${kept.tau}`);
    return parts.join(", ");
  }

  // Everything that several panels need, computed once for a state
  function compute(state, range, recorded) {
    const channel = aim.state.channelOf(state);
    const { rho, alpha } = state;
    const alphas = state.log
      ? geomspace(range.low, range.high, POINTS)
      : linspace(0, range.high, POINTS);
    const solution = aim.replica.solve(alpha, rho, channel);
    const total = aim.replica.secondMoment(rho);
    return {
      state,
      range,
      recorded: recorded.filter((entry) => matches(entry, state)),
      channel,
      alphas,
      curve: aim.replica.curve(alphas, rho, channel),
      kept: state.keep.map((kept) => ({
        ...kept,
        name: nameOf(kept, state),
        curve: aim.replica.curve(alphas, kept.rho, aim.state.channelOf(kept)),
      })),
      solution,
      information: aim.channels.information(channel, solution.error, total),
      strong: aim.replica.strongThreshold(rho, channel),
      weak: aim.replica.weakThreshold(channel),
    };
  }

  function matches(entry, state) {
    if (entry.channel !== state.channel || entry.tokens !== state.tokens) return false;
    if (Math.abs(entry.rho - state.rho) > 1e-9) return false;
    if ("tau" in entry && state.channel === "linear" && entry.tau !== state.tau) return false;
    if ("beta" in entry && entry.beta !== state.beta) return false; // descent depends on beta
    return entry.measure !== "iterations" || Math.abs(entry.alpha - state.alpha) < 1e-9;
  }

  const runsOf = (screen, iterations) =>
    screen.recorded
      .filter((entry) => (entry.measure === "iterations") === iterations)
      .map((entry) => ({
        label: `${iterations ? `message passing, ${entry.variant}` : entry.measure}, d = ${entry.dimension}`,
        role: "runs",
        table: entry.table,
        x: entry.points.map((point) => point[0]),
        y: entry.points.map((point) => point[1]),
        error: entry.points.map((point) => point[2]),
      }));

  const alphaAxis = (screen) => ({
    label: "sample complexity α = n/d²",
    log: screen.state.log,
    range: [screen.state.log ? screen.range.low : 0, screen.range.high],
  });

  const thresholdMarks = (screen) =>
    screen.strong < Infinity ? [{ x: screen.strong, label: `threshold ${show(screen.strong)}` }] : [];

  // -------------------------------------------------------------------------------------------

  function error(screen) {
    const { state, solution, alphas } = screen;
    const series = [
      { label: `Bayes-optimal, ρ = ${state.rho}`, role: "now", x: alphas, y: screen.curve.map((p) => p.error) },
      ...screen.kept.map((k) => ({ label: k.name, role: "kept", x: alphas, y: k.curve.map((p) => p.error) })),
    ];
    if (state.channel === "hardmax" && state.log) {
      const law = alphas.map((a) => aim.replica.hardmaxPowerLaw(a, state.rho, screen.channel));
      series.push({ label: "power law at large α", role: "limit", x: alphas, y: law });
    }
    const runs = runsOf(screen, false).map((run) => within(run, screen.range));
    series.push(...runs.filter((run) => run.x.length));
    const most = Math.max(1, ...series.flatMap((s) => s.y.map((y, i) => y + (s.error ? s.error[i] : 0))).filter((y) => y < 2));
    const least = screen.curve.map((p) => p.error).filter((y) => y > 1e-12);
    return {
      title: "Estimation error",
      x: alphaAxis(screen),
      y: state.log
        ? { label: "error V = Q − q", log: true, range: [Math.max(Math.min(...least), 1e-8), 2] }
        : { label: "error V = Q − q", range: [0, 1.04 * most] },
      series,
      verticals: thresholdMarks(screen),
      point: { x: state.alpha, y: solution.error },
      pick: "alpha",
      words:
        `The smallest error that any algorithm can reach, against α. At α = ${show(state.alpha)} ` +
        `it is ${show(solution.error)}. ` +
        (screen.strong < Infinity
          ? `It vanishes from α = ${show(screen.strong)} on.`
          : "It is positive at every α."),
    };
  }

  const within = (run, range) => {
    const keep = run.x.map((x) => x >= range.low && x <= range.high);
    const cut = (values) => values.filter((_, i) => keep[i]);
    return { ...run, x: cut(run.x), y: cut(run.y), error: cut(run.error) };
  };

  const PREDICTION = {
    softmax: ["Error of predicted outputs", "E‖y − E[y|data]‖²"],
    hardmax: ["Misclassified rows", "share of rows"],
    linear: ["Error of predicted indices", "E‖h − E[h|data]‖²"],
  };

  function generalization(screen) {
    const { state, alphas, solution } = screen;
    const [title, label] = PREDICTION[state.channel];
    const y = screen.curve.map((p) => p.generalization);
    const kept = screen.kept.filter((k) => k.channel === state.channel);
    const series = [
      { label: `ρ = ${state.rho}`, role: "now", x: alphas, y },
      ...kept.map((k) => ({ label: k.name, role: "kept", x: alphas, y: k.curve.map((p) => p.generalization) })),
    ];
    const most = Math.max(...series.flatMap((s) => s.y));
    const least = y.filter((value) => value > 1e-12);
    return {
      title,
      x: alphaAxis(screen),
      y: state.log
        ? { label, log: true, range: [Math.max(Math.min(...least), 1e-8), 2 * most] }
        : { label, range: [0, 1.05 * most] },
      series,
      verticals: thresholdMarks(screen),
      point: { x: state.alpha, y: solution.generalization },
      pick: "alpha",
      words: `${title} against α; at α = ${show(state.alpha)}: ${show(solution.generalization)}.`,
    };
  }

  // The effective noise of a screen: chosen by the reader where there is a control for it
  const noiseOf = (screen) => Math.max(screen.noise ?? screen.solution.noise, SMALLEST_NOISE);

  function bulksOf(screen) {
    if (!screen.bulks) {
      const bulks = aim.wishart.spectrum(screen.state.rho, noiseOf(screen), BULK_POINTS);
      const span = bulks[bulks.length - 1].high - bulks[0].low;
      // eigenvalue zero seen through hardly any noise: a line, not a curve
      screen.bulks = bulks.filter((bulk) => bulk.high - bulk.low > 1e-4 * span);
      screen.atoms = bulks.filter((bulk) => bulk.high - bulk.low <= 1e-4 * span);
      screen.edges = bulks.flatMap((bulk) => [bulk.low, bulk.high]);
    }
    return screen.bulks;
  }

  // One array over all bulks, with a gap between them
  function joined(bulks, name) {
    const values = [];
    bulks.forEach((bulk, i) => {
      if (i) values.push(name === "x" ? 0.5 * (bulks[i - 1].high + bulk.low) : null);
      values.push(...bulk[name]);
    });
    return values;
  }

  function eigenvalueAxis(screen) {
    const low = screen.edges[0];
    const high = screen.edges[screen.edges.length - 1];
    return { label: "eigenvalue λ of R", range: [low - 0.04 * (high - low), high + 0.04 * (high - low)] };
  }

  function withoutData(screen, title) {
    return {
      title,
      empty: "At α = 0 the effective noise is infinite: move α.",
      words: "Nothing to show at α = 0.",
      series: [],
    };
  }

  function spectrum(screen) {
    const title = "Spectrum of R = S + √Δ G";
    if (noiseOf(screen) === Infinity) return withoutData(screen, title);
    const bulks = bulksOf(screen);
    const x = joined(bulks, "x");
    const density = joined(bulks, "density");
    const width = bulks.reduce((sum, bulk) => sum + bulk.high - bulk.low, 0);
    const most = Math.max(...density);
    const marks = [
      ...bulks.flatMap((bulk) => [bulk.low, bulk.high]).map((edge) => ({ x: edge, label: show(edge, 3) })),
      ...screen.atoms.map(() => ({ x: 0, label: `atom, ${show(1 - screen.state.rho, 2)}` })),
    ];
    const cut = most > 6 / width;
    return {
      title,
      x: eigenvalueAxis(screen),
      y: { label: "density", range: [0, 1.05 * (cut ? 6 / width : most)] },
      series: [{ label: `Δ = ${show(noiseOf(screen), 3)}`, role: "now", x, y: density, fill: true }],
      verticals: marks,
      words:
        `Density of the eigenvalues of the noisy matrix at noise ${show(noiseOf(screen))}, ` +
        `${bulks.length === 1 ? "one bulk" : "two bulks"} with edges ` +
        `${marks.map((mark) => mark.label).join(", ")}.${cut ? " The highest values are cut." : ""}`,
    };
  }

  function denoiser(screen) {
    const title = "Optimal denoiser";
    if (noiseOf(screen) === Infinity) return withoutData(screen, title);
    const bulks = bulksOf(screen);
    const x = joined(bulks, "x");
    const y = joined(bulks, "denoised");
    const values = y.filter((value) => value !== null);
    const axis = eigenvalueAxis(screen);
    const most = Math.max(...values);
    return {
      title,
      x: axis,
      y: { label: "denoised eigenvalue D(λ)", range: [Math.min(0, ...values) - 0.04 * most, 1.06 * most] },
      series: [
        { label: "D(λ) = λ − 2Δ Re g(λ)", role: "now", x, y },
        { label: "D = λ, no shrinkage", role: "limit", x: axis.range, y: axis.range },
      ],
      verticals: [],
      words:
        `The denoiser keeps the eigenvectors of R and maps its eigenvalues, from ${show(x[0], 3)} to ` +
        `${show(x[x.length - 1], 3)}, to values from ${show(values[0], 3)} to ${show(most, 3)}.`,
    };
  }

  function iterations(screen) {
    const { state, solution } = screen;
    const steps = Array.from({ length: ITERATIONS + 1 }, (_, t) => t);
    const path =
      state.alpha > 0
        ? aim.replica.stateEvolution(state.alpha, state.rho, screen.channel, ITERATIONS)
        : steps.map(() => 1);
    return {
      title: "Iterations of state evolution",
      x: { label: "iteration", range: [0, ITERATIONS] },
      y: { label: "error V", range: [0, 1.04] },
      series: [
        { label: "state evolution", role: "now", x: steps, y: path, dots: true },
        { label: "Bayes-optimal", role: "limit", x: [0, ITERATIONS], y: [solution.error, solution.error] },
        ...runsOf(screen, true),
      ],
      verticals: [],
      words:
        `The error of message passing as predicted, from 1 at the start to ${show(path[ITERATIONS])} ` +
        `after ${ITERATIONS} iterations; its limit is ${show(solution.error)}.`,
    };
  }

  function rescaled(screen) {
    const { state, weak, channel } = screen;
    const high = Number((3 * weak).toPrecision(3));
    const x = linspace(0, high, POINTS);
    const curve = aim.replica.curve(x.map((value) => state.rho * value), state.rho, channel);
    const kept = state.keep.map((k) => ({
      label: nameOf(k, state),
      role: "kept",
      x,
      y: aim.replica.curve(x.map((v) => k.rho * v), k.rho, aim.state.channelOf(k)).map((p) => p.error),
    }));
    const runs = runsOf(screen, false)
      .map((run) => ({ ...run, x: run.x.map((value) => value / state.rho) }))
      .map((run) => within(run, { low: 0, high }));
    return {
      title: "In units of the width",
      x: { label: "rescaled sample complexity α/ρ", range: [0, high] },
      y: { label: "error V", range: [0, 1.2] },
      series: [
        { label: `ρ = ${state.rho}`, role: "now", x, y: curve.map((p) => p.error) },
        ...kept,
        { label: "limit ρ → 0", role: "limit", x, y: x.map((v) => aim.replica.smallWidthError(v, channel)) },
        ...runs.filter((run) => run.x.length),
      ],
      verticals: [{ x: weak, label: `threshold ${show(weak)}` }],
      point: { x: state.alpha / state.rho, y: screen.solution.error },
      pick: "rescaled",
      words:
        `Error against α/ρ, for ρ = ${state.rho} and in the limit of small width, where it stays at ` +
        `one up to ${show(weak)}.`,
    };
  }

  function mmse(screen) {
    const { rho, delta } = screen.state;
    const x = geomspace(1e-3, 100, POINTS);
    const kappa = aim.wishart.degreesOfFreedom(rho);
    const value = aim.wishart.mmse(rho, delta);
    return {
      title: "Error of the denoiser",
      x: { label: "noise Δ", log: true, range: [1e-3, 100] },
      y: { label: "mmse(Δ)", log: true, range: [1e-5, 2] },
      series: [
        { label: `ρ = ${rho}`, role: "now", x, y: x.map((noise) => aim.wishart.mmse(rho, noise)) },
        { label: "κ Δ, small noise", role: "limit", x, y: x.map((noise) => kappa * noise) },
      ],
      verticals: [],
      point: { x: delta, y: value },
      pick: "delta",
      words: `The minimal error of S given R, against the noise; at ${show(delta)} it is ${show(value)}.`,
    };
  }

  // -------------------------------------------------------------------------------------------

  // The table of numbers; each with the name under which the book or the library knows it
  function numbers(screen) {
    const { state, solution } = screen;
    const rows = [];
    const total = aim.replica.secondMoment(state.rho);
    if (screen.noise === undefined) {
      const limit = solution.noise === 0 ? Infinity : 1 / solution.noise;
      rows.push(["error", "estimation error V = Q − q", solution.error]);
      rows.push(["overlap", "overlap q", solution.overlap]);
      rows.push(["conjugate", "conjugate q̂ = 1/Δ", limit]);
      rows.push(["information", "channel information c", screen.information]);
      rows.push(["generalization", PREDICTION[state.channel][0].toLowerCase(), solution.generalization]);
      rows.push(["strong", "strong recovery threshold α_c", screen.strong]);
      rows.push(["weak", "weak recovery threshold of α/ρ, as ρ → 0", screen.weak]);
    } else {
      rows.push(["mmse", "minimal error mmse(Δ)", aim.wishart.mmse(state.rho, state.delta)]);
    }
    rows.push(["kappa", "degrees of freedom κ", aim.wishart.degreesOfFreedom(state.rho)]);
    rows.push(["second_moment", "second moment Q", total]);
    if (screen.edges) {
      screen.edges.forEach((edge, i) => {
        const bulk = screen.edges.length > 2 ? ` of bulk ${Math.floor(i / 2) + 1}` : "";
        rows.push([`edge${i}`, `${i % 2 ? "upper" : "lower"} edge${bulk}`, edge]);
      });
    }
    return rows;
  }

  // One or two sentences that a screen reader hears after a change
  function summary(screen) {
    const { state, solution } = screen;
    if (screen.noise !== undefined) {
      return (
        `ρ = ${state.rho}, Δ = ${show(state.delta)}: minimal error ` +
        `${show(aim.wishart.mmse(state.rho, state.delta))}, ` +
        `${screen.edges.length > 2 ? "two bulks" : "one bulk"}, edges ` +
        `${screen.edges.map((edge) => show(edge, 3)).join(", ")}.`
      );
    }
    const where =
      solution.error === 0
        ? "exact recovery"
        : `error ${show(solution.error)}, effective noise ${show(solution.noise, 3)}`;
    const threshold =
      screen.strong < Infinity ? `exact recovery from α_c = ${show(screen.strong)}` : "no exact recovery at any α";
    return (
      `${state.channel}, T = ${state.tokens}, ρ = ${state.rho}, α = ${show(state.alpha)}: ` +
      `${where}; ${PREDICTION[state.channel][0].toLowerCase()} ${show(solution.generalization)}; ${threshold}.`
    );
  }

  aim.panels = {
    all: { error, generalization, spectrum, denoiser, iterations, rescaled, mmse },
    compute,
    numbers,
    show,
    summary,
    noiseOf,
    bulksOf,
    constants: { POINTS, ITERATIONS, SMALLEST_NOISE, BULK_POINTS },
  };
})(window.aim);
