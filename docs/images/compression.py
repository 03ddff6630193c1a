#!/usr/bin/python3
"""Draws docs/images/compression.svg: validation loss of nanoGPT's CPU run with and without compression. Reads the line
"curves {...}" of the test acceptance.nanogpt_with_compression from its standard input.
Usage: ctest --preset slow -R nanogpt_with_compression -V | compression.py > compression.svg"""
import json
import re
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 760, 420, 60, 50, 20, 20
COLOURS = ["#222222", "#bbbbbb", "#4c78a8", "#f2a541"]
LOW, HIGH = 1.85, 2.55


def place(step, loss, last):
    x = LEFT + (WIDTH - LEFT - RIGHT) * step / last
    y = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (loss - LOW) / (HIGH - LOW)
    return f"{x:.1f},{y:.1f}"


def main():
    curves = json.loads(re.search(r"curves (\{.*\})", sys.stdin.read()).group(1))
    last = max(int(step) for points in curves.values() for step in points)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="13"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for tick in range(19, 26):
        y = place(0, tick / 10, last).split(",")[1]
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#dddddd"/>'
                   f'<text x="{LEFT - 8}" y="{float(y) + 4:.1f}" text-anchor="end">{tick / 10:.1f}</text>')
    for step in range(0, last + 1, 500):
        x = place(step, LOW, last).split(",")[0]
        out.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{step:,}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">step</text>'
               f'<text x="16" y="{HEIGHT / 2}" transform="rotate(-90 16 {HEIGHT / 2})" text-anchor="middle">'
               'validation loss</text>')
    for row, ((name, points), colour) in enumerate(zip(curves.items(), COLOURS)):
        ordered = sorted((int(step), loss) for step, loss in points.items())
        line = " ".join(place(step, min(loss, HIGH), last) for step, loss in ordered)
        dots = "".join('<circle cx="{}" cy="{}" r="3" fill="{}"/>'.format(*place(s, min(l, HIGH), last).split(","), colour)
                       for s, l in ordered)
        y = TOP + 20 + 20 * row
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}'
                   f'<line x1="{WIDTH - 330}" x2="{WIDTH - 300}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>'
                   f'<text x="{WIDTH - 292}" y="{y + 4}">{name}: {ordered[-1][1]:.4f}</text>')
    print("\n".join(out) + "\n</svg>")


main()
