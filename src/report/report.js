// Adds to a report: a list of its sections, the values under the pointer in its charts, the images
// behind the dots of its maps. It only adds: without it charts and maps are there, with a summary of
// each line and the class of each dot as titles. Charts and maps can be reached by the tab key, and
// the arrow keys then move along.
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
  const nearest = (list, distance) => {
    let best = 0;
    for (let i = 1; i < list.length; i++)
      if (distance(list[i]) < distance(list[best])) best = i;
    return best;
  };
  // Shows the box beside a point of the window.
  const showAt = (x, y) => {
    box.hidden = false;
    const wide = box.offsetWidth, high = box.offsetHeight;
    box.style.left = Math.max(8, Math.min(x + 16, innerWidth - wide - 8)) + "px";
    box.style.top = Math.max(8, Math.min(y + 16, innerHeight - high - 8)) + "px";
  };
  // Calls move(x, y) with the pointer's place in units of the figure, step(by) for arrow keys.
  const listen = (figure, move, step, leave) => {
    const point = event => {
      const area = figure.getBoundingClientRect();
      const unit = figure.viewBox.baseVal.width / area.width;
      move((event.clientX - area.left) * unit, (event.clientY - area.top) * unit, event);
    };
    figure.setAttribute("tabindex", "0");
    figure.addEventListener("pointermove", point);
    figure.addEventListener("pointerdown", point);
    figure.addEventListener("pointerleave", leave);
    figure.addEventListener("blur", leave);
    figure.addEventListener("keydown", event => {
      const by = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") leave();
      if (by === undefined) return;
      event.preventDefault();
      step(by);
    });
  };
  // Where something of a figure is in the window.
  const inWindow = (figure, x, y) => {
    const area = figure.getBoundingClientRect();
    const unit = area.width / figure.viewBox.baseVal.width;
    return [area.left + x * unit, area.top + y * unit];
  };
  const clamp = (value, most) => Math.max(0, Math.min(value, most));

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
    if (lines.length === 0) continue;
    const all = [...new Set(lines.flatMap(line => line.x))].sort((a, b) => a - b);
    const place = (value, log, low, high, from, to) =>
      from + ((log ? Math.log10(value) : value) - low) / (high - low) * (to - from);
    const across = value => place(value, xLog, xLow, xHigh, left, right);
    const label = chart.querySelector("text.label")?.textContent ?? "";
    const marks = node("g", {});
    let current = -1;
    chart.append(marks);

    const leave = () => {
      box.hidden = true;
      marks.replaceChildren();
    };
    const show = step => {
      const rule = across(step);
      marks.replaceChildren(
        node("line", { class: "rule", x1: rule, x2: rule, y1: top, y2: bottom }));
      box.replaceChildren(document.createTextNode(`${label} ${shown(step)}`));
      for (const line of lines) {
        const i = nearest(line.x, value => Math.abs(value - step));
        const row = document.createElement("div");
        const name = document.createElement("span");
        const value = document.createElement("b");
        name.textContent = line.name;
        name.style.color = `var(--${line.colour})`;
        value.textContent = shown(line.y[i]);
        row.append(name, value);
        box.append(row);
        marks.append(node("circle", {
          class: "dot " + line.colour, r: 3.5,
          cx: across(line.x[i]),
          cy: place(line.y[i], yLog, yLow, yHigh, bottom, top),
        }));
      }
    };
    listen(chart, (x, y, event) => {
      if (x < left - 8 || x > right + 8) return leave();
      current = nearest(all, value => Math.abs(across(value) - x));
      show(all[current]);
      showAt(event.clientX, event.clientY);
    }, by => {
      current = clamp(current + by, all.length - 1);
      show(all[current]);
      showAt(...inWindow(chart, across(all[current]), top));
    }, leave);
  }

  const sheets = document.querySelectorAll("img.sheet");
  const columns = 25, tile = 32; // of a sheet: embedding.h
  for (const map of document.querySelectorAll("svg.map")) {
    const points = [...map.querySelectorAll("path")].flatMap(path => {
      const name = path.querySelector("title")?.textContent ?? "";
      const indices = numbers(path.dataset.i);
      path.querySelector("title")?.remove();
      if (name) path.setAttribute("aria-label", name);
      return [...path.getAttribute("d").matchAll(/M(\S+) ([\d.-]+)/g)].map((found, i) => ({
        name, i: indices[i], x: Number(found[1]), y: Number(found[2]) }));
    }).sort((a, b) => a.x - b.x);
    const sheet = sheets[map.dataset.sheet - 1];
    const mark = node("circle", { class: "chosen", r: 5 });
    let current = -1;
    const leave = () => {
      box.hidden = true;
      mark.remove();
    };
    const show = point => {
      mark.setAttribute("cx", point.x);
      mark.setAttribute("cy", point.y);
      map.append(mark);
      box.replaceChildren();
      if (sheet) {
        const thumb = document.createElement("canvas"), pen = thumb.getContext("2d");
        thumb.className = "thumb";
        thumb.width = thumb.height = tile;
        pen.drawImage(sheet, point.i % columns * tile, Math.floor(point.i / columns) * tile, tile,
          tile, 0, 0, tile, tile);
        box.append(thumb);
      }
      box.append(point.name ? `${point.name}, image ${point.i + 1}` : `image ${point.i + 1}`);
    };
    listen(map, (x, y, event) => {
      const distance = point => Math.hypot(point.x - x, point.y - y);
      current = nearest(points, distance);
      if (distance(points[current]) > 12) return leave();
      show(points[current]);
      showAt(event.clientX, event.clientY);
    }, by => {
      current = clamp(current + by, points.length - 1);
      show(points[current]);
      showAt(...inWindow(map, points[current].x, points[current].y));
    }, leave);
  }

  const list = document.createElement("nav");
  list.setAttribute("aria-label", "Sections");
  for (const section of document.querySelectorAll("section[id]")) {
    const link = document.createElement("a");
    link.href = "#" + section.id;
    link.textContent = section.querySelector("h2").textContent;
    list.append(link);
  }
  document.querySelector("header").append(list);
})();
