"""product.md: the blocks of a matrix product from memory to registers, and the layout of a packed panel."""

from drawing import Drawing, size_words

MAKER = "scripts/draw-primers"


def sizes(said, instructions):
    """Of `keel env --json`: how products of fp32 are cut with these instructions."""
    (product,) = (each for each in said["products_f32"] if each["instructions"] == instructions)
    return product


def blocks(s, narrow):
    d = Drawing("A matrix product from memory to registers", 800, 400, MAKER)
    d.text(
        20,
        24,
        "C = A B in fp32, where A has more rows than B has columns: who holds what, from outside to inside",
        "head",
    )
    rows = (
        (
            "memory",
            "c",
            f"B is packed once, up to {size_words(s['shared_bytes'])} of it at a time; all threads read it",
            f"a task is {s['task_rows']} rows of C: its rows of A are packed by the thread that takes it",
        ),
        (
            "second-level cache",
            "b",
            f"a block of B: {s['block_steps']} steps of k by {s['block_columns']} columns, "
            f"{size_words(4 * s['block_steps'] * s['block_columns'])}",
            f"{s['block_columns'] // s['tile_columns']} panels, each (steps, {s['tile_columns']}), "
            "for every panel of A in turn",
        ),
        (
            "first-level cache",
            "d",
            f"a panel of A: {s['tile_rows']} rows by {s['block_steps']} steps of k, "
            f"{size_words(4 * s['tile_rows'] * s['block_steps'])}",
            "it stays, while the panels of the block of B go past it",
        ),
        (
            "registers",
            "a",
            f"a tile of C: {s['tile_rows']} rows by {s['tile_columns']} columns, "
            f"in {s['tile_rows'] * s['tile_vectors']} vectors",
            f"a step of k: {s['tile_vectors']} vectors of B and {s['tile_rows']} numbers of A are loaded, "
            f"{s['tile_rows'] * s['tile_columns']} products are added",
        ),
    )
    for i, (place, kind, what, more) in enumerate(rows):
        inset = 26 * i
        d.box(20 + inset, 44 + 74 * i, 760 - inset, 64, kind)
        d.text(32 + inset, 66 + 74 * i, place, "head")
        d.text(220 + inset / 2, 66 + 74 * i, what, "")
        d.text(220 + inset / 2, 88 + 74 * i, more, "small")
    loaded, products = s["tile_rows"] + s["tile_columns"], s["tile_rows"] * s["tile_columns"]
    loaded2, products2 = narrow["tile_rows"] + narrow["tile_columns"], narrow["tile_rows"] * narrow["tile_columns"]
    d.lines(
        20,
        362,
        (
            f"AVX-512: {loaded} numbers loaded for {products} products, {loaded / products:.2f} for each. AVX2 has half the "
            f"registers: a tile of {narrow['tile_rows']} by {narrow['tile_columns']}, {loaded2} for {products2}, "
            f"{loaded2 / products2:.2f}.",
            "Two plain loops without a tile load 2 numbers for each product.",
        ),
    )
    return d.svg()


def panel(s):
    shown_rows, shown_steps = 3, 4
    d = Drawing("A packed panel", 800, 236, MAKER)
    d.text(20, 24, f"Packing, with panels of {shown_rows} rows instead of {s['tile_rows']}", "head")
    d.text(20, 52, "A as it lies, a row after the other", "small")
    for i in range(2 * shown_rows):
        for k in range(shown_steps):
            d.box(20 + 44 * k, 62 + 25 * i, 44, 25, "a" if i < shown_rows else "b", f"{i},{k}", "small")
    d.line(208, 137, 256, 137, tip=True)
    d.text(270, 52, "the panels: the rows of one step of k lie side by side, in the order of reading", "small")
    for half in range(2):
        y = 66 + 76 * half
        for k in range(shown_steps):
            for i in range(shown_rows):
                x = 270 + 42 * (shown_rows * k + i)
                d.box(x, y, 42, 25, "a" if half == 0 else "b", f"{i + shown_rows * half},{k}", "small")
        d.text(270, y + 42, f"panel {half}: rows {shown_rows * half} to {shown_rows * half + shown_rows - 1}", "small")
    d.text(20, 228, "i,k: row i, step k", "small")
    return d.svg()


def draw(keel):
    said = keel.json("env --json")
    wide, narrow = sizes(said, "AVX-512"), sizes(said, "AVX2")
    return {"product-blocks": blocks(wide, narrow), "product-panel": panel(wide)}
