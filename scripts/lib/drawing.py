"""Pictures for pages in both themes: an SVG of shapes and words, with a style and no background of its own."""

import math
from xml.sax.saxutils import escape

# Fills a to d are told apart by what stands in or beside them, never by their colours alone.
STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .small { font-size: 11.5px; fill: #59636e }
  .head { font-weight: 600 }
  .mono { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
  .line { stroke: #59636e; fill: none; stroke-width: 1.2 }
  .grid { stroke: #d1d9e0; fill: none }
  .dashed { stroke: #59636e; fill: none; stroke-width: 1.2; stroke-dasharray: 4 3 }
  .tip { fill: #59636e }
  .plain { fill: none; stroke: #59636e }
  .faint { fill: #59636e; fill-opacity: 0.1; stroke: none }
  .a { fill: #0072b2; fill-opacity: 0.22; stroke: #0072b2 }
  .b { fill: #b35900; fill-opacity: 0.22; stroke: #b35900 }
  .c { fill: #00734f; fill-opacity: 0.22; stroke: #00734f }
  .d { fill: #8250a0; fill-opacity: 0.22; stroke: #8250a0 }
  .curve-a { fill: none; stroke: #0072b2; stroke-width: 2; stroke-linejoin: round }
  .curve-b { fill: none; stroke: #b35900; stroke-width: 2; stroke-linejoin: round; stroke-dasharray: 7 4 }
  .curve-c { fill: none; stroke: #00734f; stroke-width: 2; stroke-linejoin: round; stroke-dasharray: 2 3 }
  .dot-a { fill: #0072b2 }
  .dot-b { fill: #b35900 }
  .dot-c { fill: #00734f }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .small { fill: #9198a1 }
    .line, .dashed, .plain { stroke: #9198a1 }
    .grid { stroke: #3d444d }
    .tip, .faint { fill: #9198a1 }
    .a { fill: #56b4e9; stroke: #56b4e9 }
    .b { fill: #e69f00; stroke: #e69f00 }
    .c { fill: #3fb950; stroke: #3fb950 }
    .d { fill: #cc99ee; stroke: #cc99ee }
    .curve-a { stroke: #56b4e9 }
    .curve-b { stroke: #e69f00 }
    .curve-c { stroke: #3fb950 }
    .dot-a { fill: #56b4e9 }
    .dot-b { fill: #e69f00 }
    .dot-c { fill: #3fb950 }
  }
"""


class Drawing:
    """Shapes in the order in which they are drawn; lengths in pixels, y downwards."""

    def __init__(self, title, width, height, maker):
        self.title, self.width, self.height, self.maker = title, width, height, maker
        self.parts = []

    def text(self, x, y, words, kind="", anchor="start"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>')

    def lines(self, x, y, words, kind="small", step=16, anchor="start"):
        """Each of the words on a line of its own; returns the y of the line that would follow."""
        for each in words:
            self.text(x, y, each, kind, anchor)
            y += step
        return y

    def box(self, x, y, width, height, kind="plain", words="", word_kind=""):
        """A rectangle with words in its middle."""
        self.parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2"/>'
        )
        if words:
            self.text(x + width / 2, y + height / 2 + 4.5, words, word_kind, "middle")

    def line(self, x1, y1, x2, y2, kind="line", tip=False):
        """With a tip it is an arrow."""
        end = ' marker-end="url(#tip)"' if tip else ""
        self.parts.append(f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"{end}/>')

    def curve(self, points, kind):
        self.parts.append(f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')

    def dot(self, x, y, kind):
        self.parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.4"/>')

    def svg(self):
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
                f'viewBox="0 0 {self.width} {self.height}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<!-- made by {self.maker} -->",
                f"<style>{STYLE}</style>",
                '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
                'orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>',
                *self.parts,
                "</svg>",
                "",
            ]
        )


class Axes:
    """A panel of a drawing whose two axes are logarithmic, or, where `plain_x`, the vertical one alone."""

    def __init__(self, drawing, left, top, right, bottom, xs, ys, plain_x=False):
        self.drawing, self.left, self.top, self.right, self.bottom = drawing, left, top, right, bottom
        self.xs, self.ys, self.plain_x = xs, ys, plain_x

    def x(self, value):
        low, high = self.xs
        share = (value - low) / (high - low) if self.plain_x else math.log(value / low) / math.log(high / low)
        return self.left + (self.right - self.left) * share

    def y(self, value):
        low, high = self.ys
        return self.bottom - (self.bottom - self.top) * math.log(value / low) / math.log(high / low)

    def ticks_x(self, labels):
        """labels: pairs of a value and its words."""
        for value, words in labels:
            self.drawing.line(self.x(value), self.top, self.x(value), self.bottom, "grid")
            self.drawing.text(self.x(value), self.bottom + 17, words, "small", "middle")

    def ticks_y(self, labels):
        for value, words in labels:
            self.drawing.line(self.left, self.y(value), self.right, self.y(value), "grid")
            self.drawing.text(self.left - 7, self.y(value) + 4, words, "small", "end")

    def curve(self, points, kind):
        self.drawing.curve([(self.x(x), self.y(y)) for x, y in points], kind)

    def steps(self, points, kind):
        """A value that stays until the next point."""
        corners = []
        for (x, y), (following, _) in zip(points, points[1:] + [(points[-1][0] + 1, 0)]):
            corners += [(x, y), (following, y)]
        self.curve(corners, kind)

    def dots(self, points, kind):
        for x, y in points:
            self.drawing.dot(self.x(x), self.y(y), kind)


def size_words(count):
    """A number of bytes as people write it: 1.5 MiB."""
    for unit, words in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {words}"
    return f"{count} B"
