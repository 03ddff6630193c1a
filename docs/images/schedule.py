#!/usr/bin/python3
"""Draws docs/images/schedule.svg: three schedules of 4 stages and 8 micro-batches with F = I = W = 1 on one time axis.
B = I + W. The orders are those of runtime/plan/schedule.cc. Usage: schedule.py > schedule.svg"""

P, M = 4, 8
COLOURS = {'F': '#4c78a8', 'I': '#f2a541', 'W': '#7fb069', 'B': '#f2a541'}
DURATION = {'F': 1, 'I': 1, 'W': 1, 'B': 2}


def gpipe(rank):
    return [('F', m) for m in range(M)] + [('B', m) for m in range(M)]


def one_forward_one_backward(rank):
    ahead = P - 1 - rank
    order = [('F', m) for m in range(ahead)]
    for m in range(M):
        order += [('F', ahead + m)] * (ahead + m < M) + [('B', m)]
    return order


def zero_bubble_h1(rank):
    """1F1B whose backward is split: W follows its I by as many micro-batches as there are ranks before this one."""
    ahead = P - 1 - rank
    order = [('F', m) for m in range(ahead)]
    for m in range(M):
        order += [('F', ahead + m)] * (ahead + m < M) + [('I', m)] + [('W', m - rank)] * (m >= rank)
    return order + [('W', m) for m in range(M - rank, M)]


def simulate(schedule):
    """[rank] -> [(start, kind, micro-batch)], and the end: each instruction starts when its rank and its input are there."""
    orders = [schedule(rank) for rank in range(P)]
    end, rows, free = {}, [[] for _ in range(P)], [0] * P
    while any(orders):
        for rank, order in enumerate(orders):
            if not order:
                continue
            kind, m = order[0]
            if kind == 'F':
                source = ('F', rank - 1, m) if rank else None
            elif kind == 'W':
                source = ('I', rank, m)
            else:
                source = (kind, rank + 1, m) if rank < P - 1 else ('F', rank, m)
            if source is None or source in end:
                start = max(free[rank], end.get(source, 0))
                free[rank] = end[(kind, rank, m)] = start + DURATION[kind]
                rows[rank].append((start, kind, m))
                order.pop(0)
    return rows, max(free)


def main():
    schedules = [('GPipe', simulate(gpipe)), ('1F1B', simulate(one_forward_one_backward)), ('ZB-H1', simulate(zero_bubble_h1))]
    unit, height, left, top = 22, 18, 70, 34
    block = P * height + 44
    width = left + unit * max(total for _, (_, total) in schedules) + 20
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {block * 3 + 20}" '
          'font-family="sans-serif" font-size="11">')
    print(f'<rect width="{width}" height="{block * 3 + 20}" fill="#ffffff"/>')
    for index, (name, (rows, total)) in enumerate(schedules):
        y0 = index * block + top
        bubble = (total - 3 * M) / (3 * M)
        print(f'<text x="{left}" y="{y0 - 8}" font-size="13" fill="#222">{name}: bubble {100 * bubble:.1f} %</text>')
        for rank, row in enumerate(rows):
            y = y0 + rank * height
            print(f'<text x="8" y="{y + 13}" fill="#222">stage {rank}</text>')
            print(f'<rect x="{left}" y="{y}" width="{unit * total}" height="{height - 2}" fill="#eeeeee"/>')
            for start, kind, micro_batch in row:
                x = left + start * unit
                print(f'<rect x="{x + 0.5}" y="{y}" width="{unit * DURATION[kind] - 1}" height="{height - 2}" '
                      f'fill="{COLOURS[kind]}"/>')
                print(f'<text x="{x + unit * DURATION[kind] / 2}" y="{y + 12}" text-anchor="middle" fill="#ffffff">'
                      f'{kind}{micro_batch}</text>')
    print('</svg>')


main()
