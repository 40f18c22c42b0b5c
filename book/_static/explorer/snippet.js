// The Python that computes and draws the same screen with aimlib.
//
// Every panel has a block that draws on "ax".  Numbers of the screen (ranges, parameters, recorded
// means) are written out, so that the text runs wherever aimlib is installed.
(function (aim) {
  "use strict";

  const CLASSES = {
    softmax: (c) => `SoftmaxChannel(tokens=${c.tokens}, inverse_temperature=${c.beta})`,
    hardmax: (c) => `HardmaxChannel(tokens=${c.tokens})`,
    linear: (c) => `LinearChannel(tokens=${c.tokens}, noise=${c.tau})`,
  };
  const channelCode = (state) => CLASSES[state.channel](state);

  const quoted = (text) => JSON.stringify(text);
  const pair = (range) => `(${range.map((value) => Number(value.toPrecision(6))).join(", ")})`;

  // Bulks too narrow to draw are the atom at zero, seen through hardly any noise
  const BULKS = (noise, points) => [
    `noise = ${noise}`,
    "support = prior.support(noise)",
    "bulks = support[np.ptp(support, axis=1) > 1e-4 * np.ptp(support)]",
    `grid = 0.5 - 0.5 * np.cos(np.linspace(0, np.pi, ${points}))  # dense at the edges`,
    "",
  ];

  function runsCode(series) {
    return series
      .filter((s) => s.role === "runs")
      .flatMap((s) => [
        `# recorded: notebooks/data/${s.table}.csv, mean and standard error`,
        `x = [${s.x.map((value) => Number(value.toPrecision(6))).join(", ")}]`,
        `mean = [${s.y.join(", ")}]`,
        `error = [${s.error.join(", ")}]`,
        `ax.errorbar(x, mean, error, fmt="o", capsize=2.5, label=${quoted(s.label)})`,
      ]);
  }

  const keptCode = (screen, lines) =>
    screen.kept.length ? ["for name, other, outputs in kept:", ...lines.map((l) => `    ${l}`)] : [];

  const isSampled = ({ state, kept }) =>
    [state, ...kept].some(({ channel, tokens }) => channel === "softmax" && tokens > 2);

  const BLOCKS = {
    error: (screen, panel) => [
      `ax.plot(alphas, curve.estimation_error, color="C0", label=${quoted(panel.series[0].label)})`,
      ...keptCode(screen, [
        "ax.plot(alphas, bayes_optimal(alphas, other, outputs).estimation_error, \"--\", label=name)",
      ]),
      ...(panel.series.some((s) => s.label.startsWith("power law"))
        ? ['ax.plot(alphas, hardmax_asymptotic_error(alphas, prior, channel), ":", label="power law at large α")']
        : []),
      ...runsCode(panel.series),
      ...(screen.strong < Infinity
        ? ['ax.axvline(strong_recovery_threshold(prior, channel), color="gray", linestyle=":")']
        : []),
      'ax.plot(alpha, here.estimation_error, "ko")',
    ],
    generalization: (screen, panel) => [
      ...(isSampled(screen)
        ? [
            "# with three tokens or more a sampled integral, a tenth of a second each",
            "few = alphas[::10]",
            `ax.plot(few, bayes_optimal(few, prior, channel).generalization_error, color="C0", label=${quoted(panel.series[0].label)})`,
          ]
        : [
            `ax.plot(alphas, curve.generalization_error, color="C0", label=${quoted(panel.series[0].label)})`,
          ]),
      ...keptCode({ kept: screen.kept.filter((k) => k.channel === screen.state.channel) }, [
        ...(screen.kept.some((k) => k.channel !== screen.state.channel)
          ? ["if type(outputs) is not type(channel):", "    continue"]
          : []),
        isSampled(screen)
          ? "ax.plot(few, bayes_optimal(few, other, outputs).generalization_error, \"--\", label=name)"
          : "ax.plot(alphas, bayes_optimal(alphas, other, outputs).generalization_error, \"--\", label=name)",
      ]),
      'ax.plot(alpha, here.generalization_error, "ko")',
    ],
    spectrum: () => [
      "for low, high in bulks:",
      "    x = low + (high - low) * grid",
      '    ax.plot(x, prior.density(x, noise), color="C0")',
      "for edge in bulks.ravel():",
      '    ax.axvline(edge, color="gray", linestyle=":")',
    ],
    denoiser: () => [
      "for low, high in bulks:",
      "    x = low + (high - low) * grid",
      "    # the denoiser keeps the eigenvectors: a diagonal matrix shows what it does to eigenvalues",
      '    ax.plot(x, np.diag(prior.denoise(np.diag(x), noise)), color="C0")',
      'ax.axline((0, 0), slope=1, color="gray", linestyle="--")',
    ],
    iterations: (screen, panel) => [
      screen.state.alpha > 0
        ? `path = state_evolution(alpha, prior, channel, iterations=${aim.panels.constants.ITERATIONS})`
        : `path = np.ones(${aim.panels.constants.ITERATIONS + 1})  # nothing is learned without data`,
      'ax.plot(path, "o-", color="C0", label="state evolution")',
      'ax.axhline(here.estimation_error, color="gray", linestyle="--", label="Bayes-optimal")',
      ...runsCode(panel.series),
    ],
    rescaled: (screen, panel) => [
      `rescaled = np.linspace(0, ${panel.x.range[1]}, ${aim.panels.constants.POINTS})`,
      "finite = bayes_optimal(prior.width_ratio * rescaled, prior, channel)",
      `ax.plot(rescaled, finite.estimation_error, color="C0", label=${quoted(panel.series[0].label)})`,
      ...keptCode(screen, [
        "error = bayes_optimal(other.width_ratio * rescaled, other, outputs).estimation_error",
        'ax.plot(rescaled, error, "--", label=name)',
      ]),
      'ax.plot(rescaled, 1 - small_width_overlap(rescaled, channel), ":", label="limit ρ → 0")',
      ...runsCode(panel.series),
      'ax.axvline(weak_recovery_threshold(channel), color="gray", linestyle=":")',
      'ax.plot(alpha / prior.width_ratio, here.estimation_error, "ko")',
    ],
    mmse: () => [
      `noises = np.geomspace(1e-3, 100, ${aim.panels.constants.POINTS})`,
      'ax.plot(noises, prior.mmse(noises), color="C0")',
      'ax.plot(noises, prior.degrees_of_freedom * noises, ":", label="κ Δ, small noise")',
      'ax.plot(noise, prior.mmse(noise), "ko")',
    ],
  };

  // Names that the text uses, to import them and nothing else
  const IMPORTABLE = [
    "HardmaxChannel",
    "LinearChannel",
    "SoftmaxChannel",
    "WishartPrior",
    "bayes_optimal",
    "hardmax_asymptotic_error",
    "small_width_overlap",
    "state_evolution",
    "strong_recovery_threshold",
    "weak_recovery_threshold",
  ];

  function setup(screen, names) {
    const { state, range } = screen;
    const { POINTS, SMALLEST_NOISE, BULK_POINTS } = aim.panels.constants;
    const lines = [`prior = WishartPrior(${state.rho})`];
    const spectral = names.includes("spectrum") || names.includes("denoiser");
    if (screen.noise !== undefined) {
      return [...lines, ...BULKS(state.delta, BULK_POINTS), 'print(f"minimal error {prior.mmse(noise):.6g}")'];
    }
    lines.push(`channel = ${channelCode(state)}`, `alpha = ${state.alpha}`);
    if (names.includes("error") || names.includes("generalization")) {
      lines.push(
        state.log
          ? `alphas = np.geomspace(${range.low}, ${range.high}, ${POINTS})`
          : `alphas = np.linspace(0, ${range.high}, ${POINTS})`,
        "curve = bayes_optimal(alphas, prior, channel)",
      );
    }
    lines.push("here = bayes_optimal(alpha, prior, channel)");
    if (screen.kept.length) {
      lines.push(
        "kept = [",
        ...screen.kept.map((k) => `    (${quoted(k.name)}, WishartPrior(${k.rho}), ${channelCode(k)}),`),
        "]",
      );
    }
    if (spectral) lines.push(...BULKS(`max(1 / here.conjugate, ${SMALLEST_NOISE})`, BULK_POINTS));
    lines.push('print(f"error {here.estimation_error:.6g}, overlap {here.overlap:.6g}")');
    return lines;
  }

  function frame(panel) {
    const settings = [
      `title=${quoted(panel.title)}`,
      `xlabel=${quoted(panel.x.label)}`,
      `ylabel=${quoted(panel.y.label)}`,
    ];
    if (panel.x.log) settings.push('xscale="log"');
    if (panel.y.log) settings.push('yscale="log"');
    settings.push(`xlim=${pair(panel.x.range)}`, `ylim=${pair(panel.y.range)}`);
    return ["ax.set(", ...settings.map((text) => `    ${text},`), ")"];
  }

  function snippet(screen, panels) {
    const shown = panels.filter(({ panel }) => !panel.empty);
    const names = shown.map(({ name }) => name);
    const columns = shown.length > 1 ? 2 : 1;
    const rows = Math.ceil(shown.length / columns);
    const body = [
      ...setup(screen, names),
      "",
      `figure, axes = plt.subplots(${rows}, ${columns}, figsize=(${5.5 * columns}, ${3.8 * rows}), squeeze=False)`,
    ];
    shown.forEach(({ name, panel }, i) => {
      body.push("", `ax = axes.flat[${i}]`, ...BLOCKS[name](screen, panel), ...frame(panel));
      if (panel.series.length > 1 && name !== "denoiser") body.push("ax.legend()");
    });
    if (shown.length % columns) body.push("", "axes.flat[-1].axis(\"off\")");
    body.push("", "figure.tight_layout()", "plt.show()");
    const text = body.join("\n");
    const used = IMPORTABLE.filter((name) => new RegExp(`\\b${name}\\(`).test(text));
    return [
      "import matplotlib.pyplot as plt",
      "import numpy as np",
      "",
      "from aimlib import (",
      ...used.map((name) => `    ${name},`),
      ")",
      "",
      text,
      "",
    ].join("\n");
  }

  aim.snippet = snippet;
})(window.aim);
