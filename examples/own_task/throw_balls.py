#!/usr/bin/env python3
"""Writes throws.csv: balls that are thrown from the ground, with the drag of the air.

usage: throw_balls.py [FILE]    (throws.csv)

Speeds are in tens of metres a second, angles in radians, drag in hundredths a metre (the deceleration by the air is drag
times the square of the speed), distances and heights in tens of metres, so that all numbers are about 1.
"""

import math
import random
import sys

THROWS, SECONDS, GRAVITY = 400, 0.002, 9.81


def slowed(v, w, drag):
    """The acceleration of a ball that goes ahead at v and up at w."""
    speed = math.hypot(v, w)
    return -drag * speed * v, -GRAVITY - drag * speed * w


def fly(speed, angle, drag):
    """How far and how high it goes, in metres: the midpoint rule, until it is down again."""
    x, y, top = 0.0, 0.0, 0.0
    v, w = speed * math.cos(angle), speed * math.sin(angle)
    while True:
        a, b = slowed(v, w, drag)
        middle_v, middle_w = v + a * SECONDS / 2, w + b * SECONDS / 2
        a, b = slowed(middle_v, middle_w, drag)
        dx, dy = middle_v * SECONDS, middle_w * SECONDS
        if y + dy < 0:
            return x - dx * y / dy, top
        x, y = x + dx, y + dy
        v, w = v + a * SECONDS, w + b * SECONDS
        top = max(top, y)


def main():
    draw = random.Random(1)
    with open(sys.argv[1] if len(sys.argv) > 1 else "throws.csv", "w", encoding="utf-8") as file:
        file.write("speed,angle,drag,distance,height\n")
        for _ in range(THROWS):
            speed, angle, drag = draw.uniform(0.5, 3), draw.uniform(0.2, 1.4), draw.uniform(0, 3)
            speed, angle, drag = round(speed, 3), round(angle, 3), round(drag, 3)
            distance, height = fly(10 * speed, angle, drag / 100)
            file.write(f"{speed:.3f},{angle:.3f},{drag:.3f},{distance / 10:.3f},{height / 10:.3f}\n")


if __name__ == "__main__":
    main()
