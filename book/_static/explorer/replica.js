// The saddle point of prior and channel (replica:saddle), its dynamics and its limits.
//
// With the effective noise Delta as a parameter the saddle point is explicit: V = mmse(Delta) is
// the error and alpha = V/(2 Delta c) the sample complexity at which it is reached.  That monotone
// function is inverted here.
(function (aim) {
  "use strict";

  const SMALLEST = Math.log(1e-30);
  const LARGEST = Math.log(1e15);

  // Root of a decreasing function between two points of different sign: the Illinois variant of
  // false position, superlinear and never outside the bracket
  function root(f, low, high) {
    let [fLow, fHigh, last] = [f(low), f(high), 0];
    for (let i = 0; i < 100; i++) {
      let x = (low * fHigh - high * fLow) / (fHigh - fLow);
      if (!(x > low && x < high)) x = 0.5 * (low + high);
      const value = f(x);
      if (Math.abs(value) < 1e-10 || high - low < 1e-13 * Math.max(1, Math.abs(x))) return x;
      if (value > 0) {
        [low, fLow] = [x, value];
        if (last > 0) fHigh *= 0.5;
      } else {
        [high, fHigh] = [x, value];
        if (last < 0) fLow *= 0.5;
      }
      last = value;
    }
    return 0.5 * (low + high);
  }

  const secondMoment = (rho) => 1 + rho;

  function logComplexity(logNoise, rho, channel) {
    const noise = Math.exp(logNoise);
    const v = Math.min(aim.wishart.mmse(rho, noise), 1);
    const c = aim.channels.information(channel, v, secondMoment(rho));
    return v * c > 0 ? Math.log(v / (2 * noise * c)) : Infinity;
  }

  // alpha_c = kappa/(2 c(Q)), infinite if an output says nothing new once all is known
  // (softmax:threshold)
  function strongThreshold(rho, channel) {
    const c = aim.channels.information(channel, 0, secondMoment(rho));
    return c > 0 ? aim.wishart.degreesOfFreedom(rho) / (2 * c) : Infinity;
  }

  // 1/(2 c(0)), of alpha/rho as rho -> 0 (small_width:threshold)
  function weakThreshold(channel) {
    return 1 / (2 * aim.channels.information(channel, 1, 1));
  }

  // Effective noise at the solution with the largest error: 0 at perfect recovery, Infinity at
  // alpha = 0.  The guess, the solution at a neighbouring alpha, only saves time.
  function effectiveNoise(alpha, rho, channel, guess) {
    if (alpha === 0) return Infinity;
    if (alpha >= strongThreshold(rho, channel)) return 0;
    const excess = (x) => logComplexity(x, rho, channel) - Math.log(alpha);
    const most = aim.channels.information(channel, 1, secondMoment(rho));
    let high = Math.min(guess ? Math.log(guess) : -Math.log(2 * alpha * most), LARGEST);
    while (excess(high) > 0 && high < LARGEST) high += 0.25;
    if (high >= LARGEST) return Math.exp(high);
    let step = 0.25;
    let low = high - step;
    while (excess(low) <= 0) {
      [high, step] = [low, 2 * step];
      low -= step;
      if (low < SMALLEST) return 0;
    }
    return Math.exp(root(excess, low, high));
  }

  function solve(alpha, rho, channel, guess) {
    const noise = effectiveNoise(alpha, rho, channel, guess);
    const finite = noise > 0 && noise < Infinity;
    const error = finite ? Math.min(aim.wishart.mmse(rho, noise), 1) : noise === 0 ? 0 : 1;
    const total = secondMoment(rho);
    return {
      noise,
      error,
      overlap: total - error,
      generalization: aim.channels.generalization(channel, error, total),
    };
  }

  // The curves over an ascending grid of alpha
  function curve(alphas, rho, channel) {
    let guess = 0;
    return alphas.map((alpha) => {
      const point = solve(alpha, rho, channel, guess);
      guess = point.noise < Infinity ? point.noise : 0;
      return point;
    });
  }

  // V <- mmse(V/(2 alpha c)) from no information (amp:state-evolution)
  function stateEvolution(alpha, rho, channel, iterations) {
    const total = secondMoment(rho);
    const v = [1];
    for (let t = 0; t < iterations; t++) {
      const c = aim.channels.information(channel, Math.min(v[t], total), total);
      const noise = v[t] / (2 * alpha * c);
      v.push(v[t] === 0 || noise < 1e-14 ? 0 : aim.wishart.mmse(rho, noise));
    }
    return v;
  }

  // The error 1 - q as rho -> 0 at a given alpha/rho (small_width:curve)
  function smallWidthError(rescaled, channel) {
    const complexity = (s) => {
      const v = Math.min(s * (2 - s), 1);
      const c = aim.channels.information(channel, v, 1);
      return c > 0 ? (2 - s) / (2 * c) : Infinity;
    };
    if (rescaled <= complexity(1)) return 1;
    if (rescaled >= complexity(1e-15)) return 0;
    const excess = (x) => Math.log(complexity(Math.exp(x)) / rescaled);
    const s = Math.exp(root(excess, Math.log(1e-15), 0));
    return s * (2 - s);
  }

  // kappa/(2 alpha c'(x))^2, the error of hardmax at large alpha (hardmax:power-law)
  function hardmaxPowerLaw(alpha, rho, channel) {
    const tiny = 1e-8;
    const total = secondMoment(rho);
    const slope = aim.channels.information(channel, tiny * tiny * total, total) / tiny;
    return total * (aim.wishart.degreesOfFreedom(rho) / (2 * slope * alpha)) ** 2;
  }

  aim.replica = {
    secondMoment,
    strongThreshold,
    weakThreshold,
    solve,
    curve,
    stateEvolution,
    smallWidthError,
    hardmaxPowerLaw,
  };
})(window.aim);
