"""The table and the plots of run.py: medians over rounds, spreads, and ratios taken round by round."""

import statistics

ORDER = ["barg", "llama", "vllm"]
TITLES = {"barg": "Barg", "llama": "llama-server", "vllm": "vLLM (CPU)"}
COLOURS = {"barg": "#2a7f4f", "llama": "#b5651d", "vllm": "#3b5b92"}


def over(a, b):
    """A server that sends all its text at once has gaps of 0."""
    return a / b if b else float("inf")


def throughput(run):
    return run["output_tokens_per_s"]


def ttft(quantile):
    return lambda run: run["ttft_ms"][quantile]


def decode_rate(run):
    """Tokens per second after the first one."""
    return over(1000.0, run["tpot_ms"]["p50"])


def shared_share(run):
    return run["shared"]["output_tokens_per_s"] / run["quiet"]["output_tokens_per_s"]


def rate(kind):
    return lambda run: run[kind]


# name, load, value, digits
ROWS = [
    ("output tokens/s, 1 stream, 259 + 128 tokens", "c1", throughput, 0),
    ("output tokens/s, 8 streams", "c8", throughput, 0),
    ("output tokens/s, 32 streams", "c32", throughput, 0),
    ("TTFT of 512 tokens, ms", "ttft512", ttft("p50"), 0),
    ("TTFT of 4,000 tokens, ms", "long4000", ttft("p50"), 0),
    ("decode at 4,000 tokens of context, tokens/s", "long4000", decode_rate, 0),
    ("32 streams: TTFT p95, ms", "c32", ttft("p95"), 0),
    ("32 streams: ITL p50, ms", "c32", lambda run: run["itl_ms"]["p50"], 1),
    ("32 streams: ITL p99, ms", "c32", lambda run: run["itl_ms"]["p99"], 1),
    ("32 streams: ITL p99 over its p50", "c32", lambda run: over(run["itl_ms"]["p99"], run["itl_ms"]["p50"]), 2),
    ("RSS after 32 streams, MiB", "c32", lambda run: run["rss_bytes"] / 2**20, 0),
    ("tokens/s beside one busy process, of its own quiet figure", "busy", shared_share, 2),
    ("prefill of 512 tokens in process, tokens/s (after the rounds, in turn)", "in_process", rate("prefill"), 0),
    ("decode in process, tokens/s, 128 tokens (after the rounds, in turn)", "in_process", rate("decode"), 0),
]


def brief(load, run):
    """A line of progress."""
    if load == "busy":
        return f"{shared_share(run):.2f} of quiet"
    if load == "in_process":
        return f"prefill {run['prefill']:.1f}, decode {run['decode']:.1f} tokens/s"
    return f"{throughput(run):.1f} tokens/s, TTFT p50 {run['ttft_ms']['p50']:.0f} ms, RSS {run['rss_bytes'] >> 20} MiB"


def values(record, server, load, value):
    return [value(run) for run in record["results"].get(server, {}).get(load, [])]


def cell(numbers, digits):
    if not numbers:
        return "–"
    if len(numbers) == 1:
        return f"{numbers[0]:,.{digits}f}"
    return f"{statistics.median(numbers):,.{digits}f} ({min(numbers):,.{digits}f}–{max(numbers):,.{digits}f})"


def ratio(record, server, load, value):
    """Median over the rounds of Barg's figure divided by the peer's of the same round."""
    pairs = zip(values(record, "barg", load, value), values(record, server, load, value))
    ratios = [ours / theirs for ours, theirs in pairs if theirs]
    return f"{statistics.median(ratios):.2f}x" if ratios else "–"


def cached_share(record, server):
    """The most prompt tokens of a run that came from the server's cache, of all of that run; prompts should be new."""
    runs = [run for load in record["results"].get(server, {}).values() for run in load]
    runs = [part for run in runs for part in ([run["quiet"], run["shared"]] if "quiet" in run else [run])]
    return max((run["cached_tokens"] / run["input_tokens"] for run in runs
                if run.get("cached_tokens") and run.get("input_tokens")), default=0)


def present(record):
    return [s for s in ORDER if s in record["results"]]


def markdown(record):
    servers = present(record)
    peers = [s for s in servers if s != "barg"]
    head = ["measure", *(TITLES[s] for s in servers), *(f"Barg / {TITLES[s]}" for s in peers)]
    lines = [
        f"Measured {record['date']} by `{record['command']}`, {record['rounds']} interleaved rounds; medians, in "
        "brackets the lowest and highest.",
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
    ]
    for title, load, value, digits in ROWS:
        cells = [cell(values(record, s, load, value), digits) for s in servers]
        cells += [ratio(record, s, load, value) for s in peers]
        lines.append("| " + " | ".join([title, *cells]) + " |")
    starts = [f"{record['start_s'][s]:,.2f}" if record["start_s"].get(s) else "–" for s in servers]
    lines.append("| start to first healthy answer, s (once) | " + " | ".join(starts + ["–"] * len(peers)) + " |")
    lines.append("")
    for name, reason in record["reasons"].items():
        lines.append(f"- {TITLES.get(name, name)} has no (further) figures: {reason}")
    for name in servers:
        share = cached_share(record, name)
        if share > 0.01:
            lines.append(f"- {TITLES[name]} took up to {share:.0%} of a load's prompt tokens from a cache")
        lines.append(f"- {TITLES[name]} {record['versions'].get(name) or ''}: `{record['flags'][name]}`")
    cpu = [line for line in record["machine"]["lscpu"].splitlines() if line.startswith(("Model name", "CPU(s)", "CPU family"))]
    lines.append("- " + "; ".join(" ".join(line.split()) for line in cpu) + "; " + record["machine"]["system"])
    return "\n".join(lines) + "\n"


def bar_chart(title, unit, groups, servers):
    """An SVG of grouped bars; groups: [(label, {server: median})]."""
    width, height, left, top, floor = 720, 320, 64, 48, 260
    highest = max(v for _, g in groups for v in g.values())
    step = (width - left - 16) / len(groups)
    bar = step * 0.8 / len(servers)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{left}" y="24" font-size="15" fill="#222">{title}</text>',
        f'<text x="12" y="{top - 8}" fill="#555">{unit}</text>',
    ]
    for i in range(5):
        y = floor - (floor - top) * i / 4
        out.append(f'<line x1="{left}" x2="{width - 16}" y1="{y}" y2="{y}" stroke="#e3e3e3"/>')
        out.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end" fill="#555">{highest * i / 4:,.0f}</text>')
    for g, (label, group) in enumerate(groups):
        x = left + g * step + step * 0.1
        for i, server in enumerate(servers):
            if server not in group:
                continue
            tall = (floor - top) * group[server] / highest
            out.append(f'<rect x="{x + i * bar:.1f}" y="{floor - tall:.1f}" width="{bar * 0.92:.1f}" height="{tall:.1f}" fill="{COLOURS[server]}"/>')
            out.append(f'<text x="{x + (i + 0.46) * bar:.1f}" y="{floor - tall - 4:.1f}" text-anchor="middle" fill="#333">{group[server]:,.0f}</text>')
        out.append(f'<text x="{x + step * 0.4:.1f}" y="{floor + 18}" text-anchor="middle" fill="#222">{label}</text>')
    for i, server in enumerate(servers):
        x = left + i * 150
        out.append(f'<rect x="{x}" y="{height - 24}" width="12" height="12" fill="{COLOURS[server]}"/>')
        out.append(f'<text x="{x + 18}" y="{height - 14}" fill="#222">{TITLES[server]}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def medians(record, load, value):
    found = {s: values(record, s, load, value) for s in present(record)}
    return {s: statistics.median(v) for s, v in found.items() if v}


def plots(record, folder):
    charts = {
        "throughput": ("Output tokens per second, 259 + 128 tokens a request", "tokens/s",
                       [(label, medians(record, load, throughput))
                        for label, load in (("1 stream", "c1"), ("8 streams", "c8"), ("32 streams", "c32"))]),
        "ttft": ("Time to first token", "ms",
                 [("512 tokens, alone", medians(record, "ttft512", ttft("p50"))),
                  ("4,000 tokens, alone", medians(record, "long4000", ttft("p50"))),
                  ("32 streams, p95", medians(record, "c32", ttft("p95")))]),
    }  # fmt: skip
    for name, (title, unit, groups) in charts.items():
        groups = [(label, group) for label, group in groups if group]
        if groups:
            (folder / f"{name}.svg").write_text(bar_chart(title, unit, groups, present(record)))
