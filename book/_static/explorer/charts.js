// Draws a panel with uPlot (vendor/): colours from the style sheet, so that the figure follows the
// switch of the theme; thresholds and error bars, which uPlot has not; and alpha dragged by hand.
(function (aim) {
  "use strict";

  const HEIGHT = 250;
  const FONT = "12px system-ui, sans-serif";

  function palette(element) {
    const style = getComputedStyle(element);
    const read = (name) => style.getPropertyValue(`--aim-${name}`).trim();
    return {
      now: read("now"),
      limit: read("limit"),
      kept: [1, 2, 3, 4, 5, 6].map((k) => read(`kept-${k}`)),
      runs: [1, 2, 3, 4, 5].map((k) => read(`runs-${k}`)),
      text: read("text"),
      grid: read("grid"),
      ground: read("ground"),
    };
  }

  // Each series with its colour; those of one role are numbered
  function styled(panel, colours) {
    const count = { kept: 0, runs: 0 };
    return panel.series.map((series) => {
      const numbered = series.role in count;
      const rank = numbered ? count[series.role]++ : 0;
      const colour = numbered
        ? colours[series.role][rank % colours[series.role].length]
        : colours[series.role];
      return { ...series, colour, rank };
    });
  }

  function seriesOptions(series, colours) {
    const common = { label: series.label, stroke: series.colour, spanGaps: false, pxAlign: 0 };
    if (series.role === "runs") {
      const fill = series.rank % 2 ? series.colour : colours.ground; // told apart without colour
      return { ...common, paths: () => null, points: { show: true, size: 8, width: 2, fill } };
    }
    return {
      ...common,
      width: series.role === "now" ? 2.5 : 2,
      dash: { kept: [8, 4], limit: [3, 4] }[series.role],
      fill: series.fill ? `${series.colour}33` : undefined,
      points: { show: Boolean(series.dots), size: 6 },
    };
  }

  // uPlot wants one abscissa for all: "undefined" where a series has no point there, which its
  // lines cross, unlike "null", which is a gap
  const joined = (series) => window.uPlot.join(series.map((s) => [s.x, s.y]));

  function tick(value) {
    if (value === null) return "";
    const size = Math.abs(value);
    if (value !== 0 && (size < 1e-3 || size >= 1e4)) return value.toExponential(0).replace("-", "−");
    return String(Number(value.toPrecision(6))).replace("-", "−");
  }

  // On a logarithmic axis lines at the powers of ten only
  const decades = (_, splits) =>
    splits.map((value) => (Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9 ? value : null));

  function axis(spec, colours, size) {
    const filter = spec.log ? decades : (_, splits) => splits;
    return {
      filter,
      stroke: colours.text,
      font: FONT,
      labelFont: FONT,
      label: spec.label,
      labelSize: 18,
      labelGap: 0,
      size,
      gap: 4,
      grid: { stroke: colours.grid, width: 1, filter },
      ticks: { stroke: colours.grid, width: 1, size: 4, filter },
      values: (_, splits) => splits.map(tick),
    };
  }

  class Chart {
    // pick(value) is called while the reader drags in a panel whose "pick" is set
    constructor(element, pick) {
      this.element = element;
      this.pick = pick;
      this.shape = "";
      new ResizeObserver(() => this.resize()).observe(element);
    }

    draw(panel) {
      this.panel = panel;
      this.element.classList.toggle("aim-empty", Boolean(panel.empty));
      if (panel.empty) {
        if (this.plot) this.plot.destroy();
        this.plot = null;
        this.shape = "";
        this.element.textContent = panel.empty;
        return;
      }
      const colours = palette(this.element);
      this.series = styled(panel, colours);
      // the same kinds of series and axes keep their plot, so that a drag is not interrupted
      const shape = JSON.stringify([
        panel.x.label, panel.x.log, panel.y.label, panel.y.log, colours,
        panel.series.map((s) => [s.role, s.fill, s.dots]),
      ]);
      if (shape === this.shape) {
        this.plot.setData(joined(this.series));
        return;
      }
      this.shape = shape;
      if (this.plot) this.plot.destroy();
      this.element.textContent = "";
      this.plot = new window.uPlot(this.options(panel, colours), joined(this.series), this.element);
      this.makeDraggable(panel);
    }

    resize() {
      const width = Math.floor(this.element.clientWidth);
      if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
    }

    options(panel, colours) {
      const scale = (name) => ({
        distr: this.panel[name].log ? 3 : 1,
        time: false,
        range: () => this.panel[name].range,
      });
      return {
        width: Math.max(Math.floor(this.element.clientWidth), 200),
        height: HEIGHT,
        padding: [12, 12, 0, 0],
        legend: { show: false },
        pxAlign: 0, // lines as smooth as the numbers, not snapped to pixels
        cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
        scales: { x: scale("x"), y: scale("y") },
        axes: [axis(panel.x, colours, 26), axis(panel.y, colours, 44)],
        series: [{}, ...this.series.map((s) => seriesOptions(s, colours))],
        hooks: {
          draw: [
            (plot) => this.drawVerticals(plot, colours),
            (plot) => this.drawErrorBars(plot),
            (plot) => this.drawPoint(plot, colours),
          ],
        },
      };
    }

    // Run a drawing with the canvas clipped to the frame, in device pixels
    clipped(plot, draw) {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.setLineDash([]); // uPlot leaves that of its last series
      draw(ctx, bbox, window.devicePixelRatio || 1);
      ctx.restore();
    }

    drawVerticals(plot, colours) {
      this.clipped(plot, (ctx, box, ratio) => {
        ctx.fillStyle = colours.text;
        ctx.font = FONT.replace("12px", `${12 * ratio}px`);
        (this.panel.verticals || []).forEach((mark, i) => {
          const x = plot.valToPos(mark.x, "x", true);
          ctx.setLineDash([4 * ratio, 4 * ratio]);
          ctx.strokeStyle = colours.text;
          ctx.lineWidth = ratio;
          ctx.beginPath();
          ctx.moveTo(x, box.top);
          ctx.lineTo(x, box.top + box.height);
          ctx.stroke();
          const right = x + ctx.measureText(mark.label).width + 6 * ratio > box.left + box.width;
          ctx.textAlign = right ? "right" : "left";
          const y = box.top + (14 + 16 * (i % 4)) * ratio; // labels of close edges stay apart
          const left = x + (right ? -4 : 4) * ratio;
          ctx.setLineDash([]);
          ctx.strokeStyle = colours.ground; // a halo, where the label lies on a curve
          ctx.lineWidth = 4 * ratio;
          ctx.strokeText(mark.label, left, y);
          ctx.fillText(mark.label, left, y);
        });
      });
    }

    drawErrorBars(plot) {
      this.clipped(plot, (ctx, box, ratio) => {
        for (const series of this.series.filter((s) => s.error)) {
          ctx.strokeStyle = series.colour;
          ctx.lineWidth = 1.5 * ratio;
          series.x.forEach((value, i) => {
            const x = plot.valToPos(value, "x", true);
            const [y, error] = [series.y[i], series.error[i]];
            const radius = 4 * ratio;
            const middle = plot.valToPos(y, "y", true);
            const top = plot.valToPos(y + error, "y", true);
            const least = this.panel.y.log ? this.panel.y.range[0] : -Infinity;
            const bottom = plot.valToPos(Math.max(y - error, least), "y", true);
            ctx.beginPath();
            if (top < middle - radius) {
              ctx.moveTo(x, middle - radius);
              ctx.lineTo(x, top);
            }
            if (bottom > middle + radius) {
              ctx.moveTo(x, middle + radius);
              ctx.lineTo(x, bottom);
            }
            ctx.stroke();
          });
        }
      });
    }

    // The current parameters: a dot with a ring, larger than any recorded point
    drawPoint(plot, colours) {
      const point = this.panel.point;
      if (!point || (this.panel.x.log && !(point.x > 0))) return;
      this.clipped(plot, (ctx, box, ratio) => {
        const least = this.panel.y.range[0];
        const y = plot.valToPos(this.panel.y.log ? Math.max(point.y, least) : point.y, "y", true);
        ctx.beginPath();
        ctx.arc(plot.valToPos(point.x, "x", true), y, 6 * ratio, 0, 2 * Math.PI);
        ctx.fillStyle = colours.now;
        ctx.strokeStyle = colours.ground;
        ctx.lineWidth = 2 * ratio;
        ctx.fill();
        ctx.stroke();
      });
    }

    makeDraggable(panel) {
      if (!panel.pick) return;
      const over = this.plot.over;
      over.classList.add("aim-drag");
      const send = (event) => {
        const left = event.clientX - over.getBoundingClientRect().left;
        const [low, high] = this.panel.x.range;
        const value = this.plot.posToVal(Math.min(Math.max(left, 0), over.clientWidth), "x");
        this.pick(Math.min(Math.max(value, low), high), panel.pick);
      };
      over.addEventListener("pointerdown", (event) => {
        over.setPointerCapture(event.pointerId);
        send(event);
      });
      over.addEventListener("pointermove", (event) => {
        if (over.hasPointerCapture(event.pointerId)) send(event);
      });
    }
  }

  aim.Chart = Chart;
  aim.chartStyles = { palette, styled };
})(window.aim);
