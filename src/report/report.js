// Shows the values under the pointer in a report's charts. It only adds: without it the charts are
// there, and each line has a summary as its title.
"use strict";
(() => {
  const box = document.getElementById("values");
  const numbers = text => text.split(" ").filter(Boolean).map(Number);
  const node = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    return made;
  };
  const shown = value => {
    const size = Math.abs(value);
    if (value !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
    return String(Number(value.toPrecision(5)));
  };
  const nearest = (list, value) => {
    let best = 0;
    for (let i = 1; i < list.length; i++)
      if (Math.abs(list[i] - value) < Math.abs(list[best] - value)) best = i;
    return best;
  };

  for (const chart of document.querySelectorAll("svg.chart")) {
    const [left, right, bottom, top] = numbers(chart.dataset.area);
    const [xLow, xHigh, yLow, yHigh] = numbers(chart.dataset.ends);
    const [xLog, yLog] = numbers(chart.dataset.log);
    for (const title of chart.querySelectorAll("g.line title")) {
      title.parentNode.setAttribute("aria-label", title.textContent);
      title.remove(); // one box under the pointer is enough
    }
    const lines = [...chart.querySelectorAll("g.line")].map(line => ({
      name: line.dataset.name,
      colour: [...line.classList].find(word => /^c\d$/.test(word)),
      x: numbers(line.dataset.x),
      y: numbers(line.dataset.y),
    })).filter(line => line.x.length > 0);
    const place = (value, log, low, high, from, to) =>
      from + ((log ? Math.log10(value) : value) - low) / (high - low) * (to - from);
    const label = chart.querySelector("text.label")?.textContent ?? "";
    const marks = node("g", {});
    chart.append(marks);

    const leave = () => {
      box.hidden = true;
      marks.replaceChildren();
    };
    const enter = event => {
      const area = chart.getBoundingClientRect();
      const pixel = (event.clientX - area.left) * chart.viewBox.baseVal.width / area.width;
      if (pixel < left - 8 || pixel > right + 8 || lines.length === 0) return leave();
      const at = xLow + (pixel - left) / (right - left) * (xHigh - xLow);
      const wanted = xLog ? 10 ** at : at;
      const found = lines.map(line => ({ ...line, i: nearest(line.x, wanted) }));
      const step = found.map(line => line.x[line.i])
        .reduce((a, b) => Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a);
      const rule = place(step, xLog, xLow, xHigh, left, right);
      marks.replaceChildren(
        node("line", { class: "rule", x1: rule, x2: rule, y1: top, y2: bottom }));
      box.replaceChildren(document.createTextNode(`${label} ${shown(step)}`));
      for (const line of found) {
        const row = document.createElement("div");
        const name = document.createElement("span");
        const value = document.createElement("b");
        name.textContent = line.name;
        name.style.color = `var(--${line.colour})`;
        value.textContent = shown(line.y[line.i]);
        row.append(name, value);
        box.append(row);
        marks.append(node("circle", {
          class: "dot " + line.colour, r: 3.5,
          cx: place(line.x[line.i], xLog, xLow, xHigh, left, right),
          cy: place(line.y[line.i], yLog, yLow, yHigh, bottom, top),
        }));
      }
      box.hidden = false;
      const wide = box.offsetWidth, high = box.offsetHeight;
      box.style.left = Math.max(8, Math.min(event.clientX + 16, innerWidth - wide - 8)) + "px";
      box.style.top = Math.max(8, Math.min(event.clientY + 16, innerHeight - high - 8)) + "px";
    };
    chart.addEventListener("pointermove", enter);
    chart.addEventListener("pointerdown", enter);
    chart.addEventListener("pointerleave", leave);
  }
})();
