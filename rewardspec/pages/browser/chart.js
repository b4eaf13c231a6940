// Charts, drawn by Bokeh. Those over one axis are zoomed together, and point at the same place.

const ROUND = 60; // points of a line that are also drawn one by one
const LONG = 150; // points of a line beyond which it is drawn thin, with the mean over some of its points on it
const LETTERS = "system-ui, sans-serif";

// The charts of a page: {title, about, axis: what x is, x: values, series: [{label, colour, values}], ...}.
// labels: what x is called, if not by its number. range of a series: [least, greatest] of the values that a point is
// the mean of, drawn as a band. stacked: series are bars on each other, else lines. show: a value as text. low: where the axis of values begins.
// rate, xrate: values, or x, are parts of one. height: in pixels.
function chartBoard() {
  const charts = [];
  const drawn = { ranges: new Map(), views: null };

  function add(chart) {
    const canvas = el("div", { class: "canvas", role: "img", "aria-label": `${chart.title}. ${chart.about ?? ""}` });
    charts.push({ ...chart, canvas });
    const keys = chart.series.filter((one) => one.label !== null);
    const about = [sentence(chart.about ?? ""), windowOf(chart) > 1 ? `; thick: the mean over ${windowOf(chart)} points` : ""];
    const legend = el("ul", { class: "legend" }, keys.map((one) => el("li", {}, swatch(one.colour), one.label)));
    return el(
      "figure",
      { class: "chart" },
      el("figcaption", {}, el("strong", {}, chart.title), el("span", { class: "about" }, words(about.join("")))),
      keys.length > (chart.stacked ? 1 : 0) ? legend : null,
      canvas,
    );
  }

  // Draw all of them, again where they are: colours are those of the theme, and what was zoomed stays so.
  async function draw() {
    const kept = new Map([...drawn.ranges].map(([name, { start, end }]) => [name, { start, end }]));
    if (drawn.views !== null) drawn.views.clear();
    for (const { canvas } of charts) canvas.replaceChildren();
    const axes = new Map();
    const sheet = new Bokeh.Document();
    for (const chart of charts) sheet.add_root(figure(chart, axisOf(chart, axes, kept)));
    drawn.ranges = new Map([...axes].map(([name, { range }]) => [name, range]));
    drawn.views = await Bokeh.embed.add_document_standalone(sheet, document.body, charts.map(({ canvas }) => canvas));
    document.documentElement.dataset.drawn = String(charts.length);
  }

  function zoomOut() {
    for (const range of drawn.ranges.values()) range.setv({ start: range.reset_start, end: range.reset_end });
  }

  return { add, draw, drawn, zoomOut };
}

function zoomOutButton(board) {
  return el("button", { type: "button", class: "zoom-out", on: { click: board.zoomOut } }, "zoom out");
}

function swatch(name) {
  return el("span", { class: "swatch", style: `background: var(--${name})` });
}

// The range and the pointer's line that all charts over one axis share.
function axisOf(chart, axes, kept) {
  if (!axes.has(chart.axis)) {
    const [low, high] = ends(chart.x);
    const pad = Math.max(smallestGap(chart.x) / 2, (high - low) * 0.01);
    const whole = [low - pad, high + pad];
    const at = kept.get(chart.axis) ?? { start: whole[0], end: whole[1] };
    const range = new Bokeh.Range1d({ ...at, bounds: whole, reset_start: whole[0], reset_end: whole[1] });
    const pointer = new Bokeh.Span({ dimension: "height", line_color: colour("faint"), line_width: 1 });
    axes.set(chart.axis, { range, pointer });
  }
  return axes.get(chart.axis);
}

function figure(chart, { range, pointer }) {
  const [low, high] = heights(chart);
  const made = Bokeh.Plotting.figure({
    height: chart.height ?? 220,
    sizing_mode: "stretch_width",
    tools: [],
    toolbar_location: null,
    x_range: range,
    y_range: new Bokeh.Range1d({ start: low, end: high }),
    background_fill_color: colour("paper"),
    border_fill_color: colour("paper"),
    outline_line_color: null,
    min_border_left: 46,
    min_border_right: 12,
    min_border_top: 6,
  });
  if (chart.stacked) stack(made, chart);
  else for (const one of chart.series) line(made, chart, one);
  dress(made, chart);

  const zoom = new Bokeh.BoxZoomTool({ dimensions: "width" });
  zoom.overlay.setv({ fill_color: colour("a"), fill_alpha: 0.12, line_color: colour("a"), line_dash: "solid" });
  const wheel = new Bokeh.WheelZoomTool({ dimensions: "width", modifiers: { ctrl: true } }); // else the page scrolls
  made.add_tools(zoom, wheel, new Bokeh.CrosshairTool({ dimensions: "height", overlay: pointer }), reader(made, chart, low, high));
  made.toolbar.active_drag = zoom;
  made.toolbar.active_scroll = wheel;
  made.on_event("doubletap", () => range.setv({ start: range.reset_start, end: range.reset_end }));
  return made;
}

function stack(made, chart) {
  const width = smallestGap(chart.x) * (chart.x.length > ROUND ? 1 : 0.82);
  let bottom = chart.x.map(() => 0);
  for (const one of chart.series) {
    const top = bottom.map((from, i) => from + (one.values[i] ?? 0));
    made.vbar({ x: chart.x, top, bottom, width, fill_color: colour(one.colour), line_color: null });
    bottom = top;
  }
}

function line(made, chart, { values, range, colour: name, width }) {
  const window = windowOf(chart);
  const draw = (y, line_width, line_alpha) =>
    made.line({ x: chart.x, y: y.map((value) => value ?? NaN), line_color: colour(name), line_width, line_alpha }); // NaN is a gap
  if (range) {
    const [y1, y2] = [0, 1].map((end) => range.map((ends) => ends[end] ?? NaN));
    made.varea({ x: chart.x, y1, y2, fill_color: colour(name), fill_alpha: 0.15 });
  }
  draw(values, window === 1 ? (width ?? 2) : 1, window === 1 ? 1 : 0.3);
  if (window > 1) draw(means(values, window), width ?? 2, 1);
  if (chart.x.length > ROUND) return;
  const y = values.map((value) => value ?? NaN);
  made.scatter({ x: chart.x, y, size: 5, fill_color: colour(name), line_color: null });
}

// How many points the thick line is the mean over; 1 if there are few enough to tell them apart.
function windowOf(chart) {
  return chart.stacked || chart.x.length <= LONG ? 1 : 2 * Math.round(chart.x.length / 100) + 1;
}

// The mean over each value and its neighbours, as far as they are there.
function means(values, window) {
  const half = (window - 1) / 2;
  return values.map((_, i) => {
    const near = values.slice(Math.max(0, i - half), i + half + 1).filter((value) => typeof value === "number");
    return near.length ? near.reduce((sum, value) => sum + value, 0) / near.length : null;
  });
}

// What the pointer reads: all values above one x, in the digits of the tables.
function reader(made, chart, low, high) {
  const data = { x: chart.x, at: chart.labels ?? chart.x.map((x) => (chart.xrate ? rate(x) : number(x))) };
  const rows = chart.series.map((one, i) => {
    const rangeOf = ([low, high]) => ` (${chart.show(low)} to ${chart.show(high)})`;
    data[`of${i}`] = one.values.map((value, at) => chart.show(value) + (one.range ? rangeOf(one.range[at]) : ""));
    return [visible(one.label ?? chart.title), `@of${i}`];
  });
  const places = new Bokeh.ColumnDataSource({ data });
  const place = made.vbar({
    x: { field: "x" },
    top: high,
    bottom: low,
    width: smallestGap(chart.x),
    source: places,
    fill_alpha: 0,
    line_alpha: 0,
  });
  return new Bokeh.HoverTool({ renderers: [place], point_policy: "follow_mouse", show_arrow: false, tooltips: [[chart.axis, "@at"], ...rows] });
}

function dress(made, chart) {
  for (const axis of [...made.xaxis, ...made.yaxis]) {
    axis.setv({
      axis_line_color: colour("rule"),
      major_tick_line_color: colour("rule"),
      minor_tick_line_color: null,
      major_label_text_color: colour("soft"),
      major_label_text_font: LETTERS,
      major_label_text_font_size: "11px",
      axis_label_text_color: colour("soft"),
      axis_label_text_font: LETTERS,
      axis_label_text_font_size: "11px",
      axis_label_text_font_style: "normal",
    });
  }
  const percent = () => new Bokeh.NumeralTickFormatter({ format: "0%" });
  for (const axis of made.yaxis) if (chart.rate) axis.formatter = percent();
  for (const axis of made.xaxis) {
    axis.axis_label = chart.axis;
    axis.ticker = new Bokeh.BasicTicker({ desired_num_ticks: 6, min_interval: chart.xrate ? 0 : 1 });
    if (chart.xrate) axis.formatter = percent();
  }
  for (const grid of made.xgrid) grid.grid_line_color = null;
  for (const grid of made.ygrid) grid.grid_line_color = colour("rule");
}

function heights(chart) {
  if (chart.rate) return [0, 1.02];
  const values = chart.series.flatMap((one) => [...one.values, ...(one.range ?? []).flat()]).filter((value) => typeof value === "number");
  const [low, high] = ends(chart.low === undefined ? values : [...values, chart.low]);
  const pad = (high - low || Math.abs(high) || 1) * 0.06;
  return [low === chart.low ? low : low - pad, high + pad];
}

function ends(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return low > high ? [0, 1] : [low, high];
}

function smallestGap(values) {
  const sorted = [...new Set(values)].sort((a, b) => a - b);
  const gaps = sorted.slice(1).map((value, i) => value - sorted[i]);
  return gaps.length ? ends(gaps)[0] : 1;
}
