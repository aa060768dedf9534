// Plots of the last minutes, by uPlot, and the small ones in the list.

/* global uPlot */

import { element, say } from './elements.js';
import { rate, recent } from './format.js';

/** How many seconds are shown at most, as many as the service keeps; and at least. */
export const SHOWN = 300;
const LEAST_SHOWN = 60;

/** What is counted, in the order in which samples tell it. */
export const COUNTS = [
  { name: 'admitted', label: 'admitted', dash: [] },
  { name: 'refused', label: 'refused', dash: [] },
  { name: 'repeated', label: 'refused locally', dash: [6, 3] },
  { name: 'dry-run', label: 'would have refused', dash: [2, 3] },
  { name: 'degraded', label: 'without the store', dash: [8, 3, 2, 3] },
  { name: 'undecided', label: 'not decided', dash: [4, 4] },
];

// A canvas takes no variables: an element that is not shown tells what they are now.
const sample = document.body.appendChild(document.createElement('i'));
sample.hidden = true;
// Each question makes the browser compute styles anew, and a plot has hundreds of bars.
const colors = new Map();
const color = (name) => {
  if (!colors.has(name)) {
    sample.style.color = `var(--${name})`;
    colors.set(name, getComputedStyle(sample).color);
  }
  return colors.get(name);
};

/** To be called before plots are drawn in other colours. */
export const forgetColors = () => colors.clear();

const FONT = '11px system-ui, sans-serif';

const axis = (more) => ({
  stroke: () => color('muted'),
  font: FONT,
  grid: { stroke: () => color('line'), width: 1 },
  ticks: { show: false },
  ...more,
});

const clock = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23',
});

/** Draws a line at each mark, with its label beside those that are near. */
function drawMarks({ ctx: pen, bbox, scales, valToPos }, marks, ratio) {
  pen.save();
  pen.font = `${11 * ratio}px system-ui, sans-serif`;
  [pen.strokeStyle, pen.fillStyle, pen.lineWidth] = [color('edge'), color('muted'), ratio];
  pen.setLineDash([4 * ratio, 3 * ratio]);
  let [row, end] = [0, 0];
  for (const { at, label } of marks.filter((mark) => mark.at > scales.x.min - 3 && mark.at <= scales.x.max)) {
    const x = Math.max(valToPos(at, 'x', true), bbox.left);
    const width = pen.measureText(label).width + 8 * ratio;
    const isLeft = x + width > bbox.left + bbox.width;
    row = x - (isLeft ? width : 0) < end ? (row + 1) % 5 : 0;
    end = Math.max(end, isLeft ? x : x + width);
    pen.beginPath();
    pen.moveTo(x, bbox.top);
    pen.lineTo(x, bbox.top + bbox.height);
    pen.stroke();
    pen.textAlign = isLeft ? 'right' : 'left';
    pen.fillText(label, x + (isLeft ? -4 : 4) * ratio, bbox.top + (12 + row * 13) * ratio);
  }
  pen.restore();
}

function plot(place, height, series, range, values, told, marks) {
  const options = {
    width: Math.max(place.clientWidth, 200),
    height,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    scales: {
      x: { time: true, range: (_, min, max) => [Math.min(min ?? 0, (max ?? 1) - LEAST_SHOWN), max ?? 1] },
      y: { range: (_, __, max) => range(max) },
    },
    series: [{}, ...series],
    axes: [
      axis({ size: 24, space: 80, values: (_, ticks) => ticks.map((at) => clock.format(at * 1000)) }),
      axis({ size: 44, space: 28, values: (_, ticks) => ticks.map(values) }),
    ],
    hooks: {
      setCursor: [(it) => told(it.cursor.idx)],
      draw: [(it) => drawMarks(it, marks(), window.devicePixelRatio || 1)],
    },
  };
  const drawn = new uPlot(options, [[], ...series.map(() => [])], place);
  const watch = new ResizeObserver(() => {
    if (place.clientWidth > 0 && place.clientWidth !== drawn.width) {
      drawn.setSize({ width: place.clientWidth, height });
    }
  });
  watch.observe(place);
  return {
    show: (data) => drawn.setData(data),
    redraw: () => drawn.redraw(false),
    end() {
      watch.disconnect();
      drawn.destroy();
    },
  };
}

/** Calls per second, with a legend that has the means of the last seconds, or the numbers under the pointer. */
export function ratePlot(place, legend, height) {
  let shown = null;
  let pointed = null;
  let marks = [];
  let isOff = false;
  const values = COUNTS.map(({ name, label }) => {
    const value = element('span', { class: 'value' }, '0');
    legend.append(element('span', { class: 'tile', 'data-count': name },
      element('span', { class: `swatch ${name}`, 'aria-hidden': 'true' }),
      element('span', { class: 'label' }, label), value));
    return value;
  });
  const tell = () => {
    if (!shown) return;
    const of = (list) => (pointed === null ? recent(list) : list[pointed]);
    // A zero would look like an outage.
    values.forEach((value, count) => {
      const number = of(shown[count + 1]);
      const isCounted = number !== null && !(isOff && pointed === null);
      say(value, isCounted ? rate(number ?? 0) : 'not counted');
      value.classList.toggle('none', !isCounted);
    });
  };
  const series = COUNTS.map(({ name, dash }) => ({
    stroke: () => color(name),
    fill: name === 'admitted' ? () => color('admitted-area') : undefined,
    width: name === 'admitted' || name === 'refused' ? 1.75 : 1.5,
    dash,
    points: { show: false },
  }));
  const drawn = plot(place, height, series,
    (max) => [0, Math.max(1, (max ?? 0) * 1.15)],
    (value) => (value < 10 ? String(Number(value.toFixed(2))) : rate(value)),
    (at) => {
      pointed = at ?? null;
      tell();
    }, () => marks);
  return {
    ...drawn,
    /** Shows the counts and the marks; of a limit that `is_off` nothing is counted now. */
    show(times, counts, next, off) {
      [shown, marks, isOff] = [[times, ...counts], next, off];
      // What never happened is no line on the floor.
      const happened = (list) => (list.some((value) => value > 0) ? list : list.map(() => null));
      drawn.show([times, counts[0], ...counts.slice(1, COUNTS.length).map(happened)]);
      tell();
    },
  };
}

/** The last minute of one limit, a bar each second: admitted, and refused on top of them. */
export function spark(canvas, series) {
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (width === 0) return;
  if (canvas.width !== Math.round(width * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext('2d');
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  const last = series[0].slice(-60);
  const from = series[0].length - last.length;
  const rows = last.map((admitted, index) => {
    const at = (count) => series[count][from + index];
    return [['admitted', admitted], ['refused', at(1) + at(2)], ['dry-run', at(3)], ['undecided', at(5)]];
  });
  const most = Math.max(1, ...rows.map((row) => row.reduce((sum, [, value]) => sum + value, 0)));
  const step = width / 60;
  rows.forEach((row, index) => {
    const x = width - (rows.length - index) * step;
    let y = height;
    for (const [name, value] of row) {
      const tall = (value / most) * (height - 1);
      pen.fillStyle = color(name);
      pen.fillRect(x, y - tall, Math.max(step - 0.75, 0.75), tall);
      y -= tall;
    }
  });
  pen.fillStyle = color('line');
  pen.fillRect(0, height - 1, width, 1);
}
