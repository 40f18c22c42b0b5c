// The Wishart prior seen through Gaussian noise, R = S + sqrt(Delta) G, for any width ratio rho.
//
// The same method as aimlib/priors.py, whose chapter is "Random-matrix toolbox".  The resolvent of
// R solves a cubic (priors:cubic).  Inside a bulk its third root, g3 = sqrt(rho) + e, is real: the
// eigenvalue is explicit in e, and the optimal denoiser (priors:rie) is simply Delta e.
//
// Classic scripts on one global name rather than modules: browsers refuse to load modules from a
// page that was opened from disk.
window.aim = window.aim || {};
(function (aim) {
  "use strict";

  // z(s) = 1/s + Delta s + rho/(sqrt(rho) - s), the inverse of the resolvent (priors:cubic)
  function inverseResolvent(s, rho, noise) {
    return 1 / s + noise * s + rho / (Math.sqrt(rho) - s);
  }

  // Phi = Delta s^2 + rho s^2/(sqrt(rho) - s)^2 is one at the edges, smaller outside the bulks
  function edgeCondition(s, rho, noise) {
    const root = Math.sqrt(rho);
    const y = (root * s) / (root - s);
    return noise * s * s + y * y;
  }

  function bisect(inside, outside, isInside) {
    for (let i = 0; i < 200; i++) {
      const middle = 0.5 * (inside + outside);
      if (middle === inside || middle === outside) break;
      if (isInside(middle)) inside = middle;
      else outside = middle;
    }
    return inside;
  }

  // Edges of the support in z, ascending, two for each bulk, and the resolvent at each.  There are
  // two bulks if and only if rho (1 + Delta^{1/3})^3 < 1 (priors:merging).
  function edges(rho, noise) {
    const root = Math.sqrt(rho);
    const outside = (s) => edgeCondition(s, rho, noise) < 1;
    const points = [bisect(0, -1 / Math.sqrt(noise), outside)];
    const cube = Math.cbrt(noise);
    if (rho * (1 + cube) ** 3 < 1) {
      const narrow = root * (1 + 1 / cube); // the minimum of Phi beyond sqrt(rho)
      points.push(bisect(narrow, 1 / Math.sqrt(noise), outside));
      points.push(bisect(narrow, root, outside));
    }
    points.push(bisect(0, Math.min(root, root / (1 + root)), outside));
    return { points, edges: points.map((s) => inverseResolvent(s, rho, noise)) };
  }

  // Solve 1/(sqrt(rho)+e) + Delta (sqrt(rho)+e) - rho/e = lambda for e in (low, high): Newton, with
  // a geometric bisection wherever it would leave the bracket
  function thirdRoot(lambda, rho, noise, low, high) {
    const root = Math.sqrt(rho);
    // 0 < 1/(sqrt(rho)+e) < 1/sqrt(rho) turns the equation into two quadratics that bound e
    const bound = (shift) => {
      const linear = noise * root + shift - lambda;
      const discriminant = Math.sqrt(linear * linear + 4 * noise * rho);
      return linear > 0 ? (2 * rho) / (linear + discriminant) : (discriminant - linear) / (2 * noise);
    };
    low = Math.max(low, bound(1 / root) * (1 - 1e-14));
    high = Math.max(low, Math.min(high, bound(0) * (1 + 1e-14)));
    let e = Math.sqrt(low * high);
    for (let i = 0; i < 200; i++) {
      const inverse = 1 / (root + e);
      const linear = noise * (root + e);
      const pole = rho / e;
      const value = inverse + linear - pole - lambda;
      if (Math.abs(value) <= 2e-16 * (inverse + linear + pole + Math.abs(lambda))) return e;
      const slope = noise - inverse * inverse + pole / e;
      if (value > 0) high = e;
      else low = e;
      let next = slope > 0 ? e - value / slope : low;
      if (!(low < next && next < high)) next = Math.sqrt(low * high);
      if (Math.abs(next - e) <= 2e-16 * e || next === low || next === high) return next;
      e = next;
    }
    return e;
  }

  // Re g and |g|^2 where D = Delta e.  Two exact expressions of Re g; each is ill-conditioned
  // somewhere, so take the better one.
  function resolventAt(lambda, e, rho, noise) {
    const root = Math.sqrt(rho);
    const third = root + e;
    const square = root / (noise * third);
    const size = Math.abs(lambda);
    const errorSum = (size + noise * e) / (2 * noise);
    const errorProduct = ((size * root + Math.abs(1 - rho)) / noise + square) / (2 * third);
    const real =
      errorSum < errorProduct
        ? (lambda - noise * e) / (2 * noise)
        : ((lambda * root + (1 - rho)) / noise - square) / (2 * third);
    return { real, square };
  }

  // Density and denoised eigenvalue at a point inside the bulk of this number
  function inside(lambda, bulk, bulks, rho, noise) {
    const turning = Math.sqrt(rho) / Math.cbrt(noise); // where dz/de = 0 between two bulks
    const low = bulks === 2 && bulk === 1 ? turning : 0;
    const high = bulks === 2 && bulk === 0 ? turning : Infinity;
    const e = thirdRoot(lambda, rho, noise, low, high);
    const { real, square } = resolventAt(lambda, e, rho, noise);
    return {
      density: Math.sqrt(Math.max(square - real * real, 0)) / Math.PI,
      denoised: noise * e,
    };
  }

  // The spectrum of R bulk by bulk, on points that resolve the square roots at the edges
  function spectrum(rho, noise, count) {
    const { points, edges: ends } = edges(rho, noise);
    const bulks = [];
    for (let k = 0; k < ends.length / 2; k++) {
      const [low, high] = [ends[2 * k], ends[2 * k + 1]];
      const bulk = { low, high, x: [], density: [], denoised: [] };
      for (let i = 1; i < count - 1; i++) {
        const x = 0.5 * (low + high) - 0.5 * (high - low) * Math.cos((Math.PI * i) / (count - 1));
        const value = inside(x, k, ends.length / 2, rho, noise);
        bulk.x.push(x);
        bulk.density.push(value.density);
        bulk.denoised.push(value.denoised);
      }
      // at the edges themselves two roots meet, and the resolvent is known exactly
      const atEdge = (i) => ends[i] - 2 * noise * points[i];
      bulk.x = [low, ...bulk.x, high];
      bulk.density = [0, ...bulk.density, 0];
      bulk.denoised = [atEdge(2 * k), ...bulk.denoised, atEdge(2 * k + 1)];
      bulks.push(bulk);
    }
    return bulks;
  }

  // Density times |g|^2/|1 - g/sqrt(rho)|^2, the form of the MMSE without cancellation
  // (priors:mmse-wishart), times d(lambda)/d(log e): e runs along a bulk as the eigenvalue does, and in its
  // logarithm hard edges and near-merging bulks are smooth.
  function mmseIntegrand(logE, rho, noise) {
    const root = Math.sqrt(rho);
    const e = Math.exp(logE);
    const inverse = 1 / (root + e);
    const pole = rho / e;
    const lambda = inverse + noise * (root + e) - pole;
    const { real, square } = resolventAt(lambda, e, rho, noise);
    if (square <= real * real) return 0;
    const jacobian = noise * e - e * inverse * inverse + pole;
    const density = Math.sqrt(square - real * real) / Math.PI;
    return (density * jacobian * square * noise * e) / root;
  }

  // Trapezoid in t with log e = centre + half cos t, doubled until it has converged geometrically;
  // null where it does not, which happens when two bulks are about to merge
  function trapezoid(left, right, integrand) {
    const centre = 0.5 * (left + right);
    const half = 0.5 * (right - left);
    const value = (t) => integrand(centre + half * Math.cos(t)) * Math.sin(t);
    let total = 0;
    let previous = 0;
    for (let n = 8; n <= 512; n *= 2) {
      for (let j = 1; j < n; j += n === 8 ? 1 : 2) total += value((Math.PI * j) / n);
      const current = ((total * Math.PI) / n) * half;
      // the error of the finer sum is about the square of this change
      if (n > 8 && Math.abs(current - previous) <= 1e-7 * Math.abs(current)) return current;
      previous = current;
    }
    return null;
  }

  // The double-exponential rule, which tolerates any behaviour at the ends
  function doubleExponential(left, right, integrand) {
    const half = 0.5 * (right - left);
    const step = 3.2 / 96;
    let total = 0;
    for (let j = -96; j <= 96; j++) {
      const argument = 0.5 * Math.PI * Math.sinh(j * step);
      // distance from the nearer end, so that nodes next to an end keep it
      const distance = (2 * half) / (Math.exp(2 * Math.abs(argument)) + 1);
      const weight = (0.5 * Math.PI * Math.cosh(j * step)) / Math.cosh(argument) ** 2;
      total += integrand(j < 0 ? left + distance : right - distance) * weight;
    }
    return total * half * step;
  }

  // Minimal error of S given R (priors:mmse)
  function mmse(rho, noise) {
    const root = Math.sqrt(rho);
    const { points } = edges(rho, noise);
    // the third root at an edge, where the other two are equal to s
    const ends = points.map((s) => Math.log((rho * root) / noise) - 2 * Math.log(Math.abs(root - s)));
    const narrow = 0.5 * Math.log(rho) - Math.log(noise) / 3;
    const integrand = (x) => mmseIntegrand(x, rho, noise);
    let total = 0;
    for (let k = 0; k < ends.length; k += 2) {
      const [left, right] = [ends[k], ends[k + 1]];
      let value = trapezoid(left, right, integrand);
      if (value === null && left < narrow && narrow < right) {
        value =
          doubleExponential(left, narrow, integrand) + doubleExponential(narrow, right, integrand);
      } else if (value === null) {
        value = doubleExponential(left, right, integrand);
      }
      total += value;
    }
    return noise * total;
  }

  // kappa, the number of degrees of freedom over d^2/2 (priors:kappa)
  function degreesOfFreedom(rho) {
    return rho < 1 ? 2 * rho - rho * rho : 1;
  }

  aim.wishart = { edges, spectrum, mmse, degreesOfFreedom };
})(window.aim);
