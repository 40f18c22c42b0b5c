// Output channels: what one output is worth, and how well the next one can be predicted.
//
// A channel is {name, tokens, beta, tau}.  V = Q - q is the uncertainty left and Q the second
// moment of the prior.  Names and conventions are those of aimlib/channels.py.
(function (aim) {
  "use strict";

  // Clenshaw's recurrence
  function chebyshev(coefficients, t) {
    let [b0, b1] = [0, 0];
    for (let k = coefficients.length - 1; k > 0; k--) {
      [b0, b1] = [coefficients[k] + 2 * t * b0 - b1, b0];
    }
    return coefficients[0] + t * b0 - b1;
  }

  const angle = (v, total) => Math.asin(Math.min(Math.sqrt(v / total), 1));
  const unit = (theta) => (4 * theta) / Math.PI - 1;

  // c, the number of index directions that an output pins down (channels:information):
  // softmax (channels:softmax-c), linear (channels:linear-c), hardmax (hardmax:information)
  function information(channel, v, total) {
    const t = channel.tokens;
    if (channel.name === "softmax") return (t * (t + 1)) / 2 - 1;
    if (channel.name === "hardmax") {
      const x = Math.min(Math.sqrt(v / total), 1);
      return x * chebyshev(aim.tables.hardmax[t].information, 2 * x - 1);
    }
    if (channel.tau === 0) return (t * (t + 1)) / 2;
    return (2 * t * v) / (2 * v + channel.tau) + (0.5 * t * (t - 1) * v) / (v + channel.tau);
  }

  // softmax:generalization.  Stored divided by its limits at small and at large arguments.
  function softmaxError(channel, v, total) {
    const { lowest, highest, softmax } = aim.tables;
    const b = channel.beta * Math.sqrt(total);
    const theta = angle(v, total);
    const x = Math.sin(theta);
    const s = (2 * Math.log(b / lowest)) / Math.log(highest / lowest) - 1;
    const rows = softmax[channel.tokens].map((row) => chebyshev(row, unit(theta)));
    return (chebyshev(rows, s) * (b * x) ** 2) / ((1 + b * x) * (1 + b));
  }

  // Error of the best prediction of a new output: squared for softmax and linear, the share of
  // misclassified rows for hardmax (hardmax:misclassification)
  function generalization(channel, v, total) {
    const t = channel.tokens;
    if (channel.name === "softmax") return softmaxError(channel, v, total);
    if (channel.name === "linear") return t * (t + 1) * v;
    const theta = angle(v, total);
    return theta * chebyshev(aim.tables.hardmax[t].misclassified, unit(theta));
  }

  aim.channels = { information, generalization };
})(window.aim);
