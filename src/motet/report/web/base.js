"use strict";
// Shared by all pages: DOM elements, colors and the theme, numbers, and asking the dashboard.

// Keys are names of metrics, clients and labels. Without a prototype, an object has no key such as "valueOf" on its own.
const parseJson = (text) =>
  JSON.parse(text, (_, value) =>
    value !== null && typeof value === "object" && !Array.isArray(value) ? Object.setPrototypeOf(value, null) : value);

const pageData = parseJson(document.getElementById("data").textContent);

// DOM

const $ = (id) => document.getElementById(id);
const isNarrow = () => window.innerWidth < 600;
const cssValue = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function createElement(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (name === "color") element.style.setProperty("--color", value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Fill a select, and keep what the reader has chosen if it is still there.
function fillSelect(select, entries, fallback) {
  const values = entries.map(([value]) => value);
  const selected = values.includes(select.value) ? select.value : fallback;
  const option = ([value, text]) =>
    createElement("option", value === selected ? { value, selected: "" } : { value }, text);
  select.replaceChildren(...entries.map(option));
}

// Theme: what the reader chose, or else what the system prefers

const systemTheme = window.matchMedia("(prefers-color-scheme: dark)");
const isDark = () => document.documentElement.dataset.theme === "dark";

function readStoredTheme() {
  try {
    return localStorage.getItem("motet-theme");
  } catch {
    return null; // a browser may forbid storage
  }
}

function applyTheme(onChange) {
  const theme = readStoredTheme() ?? (systemTheme.matches ? "dark" : "light");
  document.documentElement.dataset.theme = theme;
  onChange();
}

function initTheme(onChange) {
  applyTheme(() => {});
  systemTheme.addEventListener("change", () => applyTheme(onChange));
  $("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("motet-theme", document.documentElement.dataset.theme);
    } catch { /* the choice lasts until the page is closed */ }
    onChange();
  });
}

// Numbers

const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;

function std(values) {
  if (values.length < 2) return 0;
  const center = mean(values);
  return Math.sqrt(values.reduce((sum, v) => sum + (v - center) ** 2, 0) / (values.length - 1));
}

function formatNumber(number) {
  if (number === null || number === undefined || Number.isNaN(number)) return "–";
  const size = Math.abs(number);
  if (size >= 1000) return useMinusSign(Math.round(number).toLocaleString("en"));
  return useMinusSign(number.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3));
}

// A minus sign is as wide as a digit; a hyphen is not.
const useMinusSign = (text) => text.replace("-", "−");

// The mean and the standard deviation get the same number of decimals.
function formatMeanStd(center, deviation) {
  if (deviation === null || deviation === undefined) return formatNumber(center);
  const digits = Math.abs(center) >= 100 ? 0 : Math.abs(center) >= 10 ? 1 : 2;
  return `${useMinusSign(center.toFixed(digits))} ± ${deviation.toFixed(digits)}`;
}

const countOf = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

function formatDuration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} days`;
}

function formatBytes(bytes) {
  const [unit, size] = bytes >= 1e9 ? ["GB", 1e9] : bytes >= 1e6 ? ["MB", 1e6] : ["kB", 1e3];
  const number = bytes / size;
  return `${number.toFixed(number >= 100 ? 0 : number >= 10 ? 1 : 2)} ${unit}`;
}

// States of runs

const STATE_NAMES = {
  running: "running", waiting: "waiting", finished: "finished", failed: "failed", interrupted: "interrupted",
};

function stateBadge(state) {
  return createElement("span", { class: `badge ${STATE_NAMES[state] ?? ""}` }, STATE_NAMES[state] ?? String(state));
}

function progressBar(done, all, label) {
  return createElement("progress", { value: done, max: Math.max(1, all), "aria-label": label });
}

// The dashboard

const POLL_SECONDS = 2, IDLE_SECONDS = 4;

async function ask(address) {
  const response = await fetch(address, { cache: "no-store" });
  if (!response.ok) throw new Error(response.status === 401 ? "the token is no longer valid" : await response.text());
  return parseJson(await response.text());
}

// Call `look` again and again while the page is visible. It returns whether something is going on.
function keepLooking(look) {
  const wait = (seconds) => setTimeout(step, 1000 * seconds);
  async function step() {
    if (document.hidden) {
      document.addEventListener("visibilitychange", step, { once: true });
      return;
    }
    try {
      const isBusy = await look();
      $("connection").hidden = true;
      wait(isBusy ? POLL_SECONDS : IDLE_SECONDS);
    } catch (error) {
      const reason = error instanceof TypeError ? "the dashboard does not respond" : error.message;
      $("connection").textContent = `Not up to date: ${reason}. Trying again.`;
      $("connection").hidden = false;
      wait(IDLE_SECONDS);
    }
  }
  step();
}
