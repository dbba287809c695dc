"""Compiled local steps of logistic regression, in the coefficients of a user's rows.

A step sees the rows only through their scores at the global model and their Gram matrix. Only a user with very many
rows goes through the local weights instead. Loops are handed arrays and numbers one by one, however many there are.
"""

# parameters: compiled loops take arrays and words; numba does not know our objects.

import numpy as np

from apes.mathematics.arrays import F32, I64, U8
from apes.mathematics.compiled import compiled, compiled_reordering, inlined
from apes.mathematics.elementary import exp_negative

# Rows of a user up to which the Gram matrix takes less time than the local weights: the break-even for ten classes and
# ten steps. It also bounds the matrix's memory.
_GRAM_ROWS = 400


@compiled_reordering
def local_coefficients(
    weights: F32, features: F32, labels: U8, offsets: I64, epochs: int, learning_rate: float, mu: float, out: F32
) -> None:
    """Coefficients of (w_global - w_local) in each user's rows after ``epochs`` full-batch steps.

    With w_local = w_global - sum_i a_i (x_i, 1)^T, a step of rate r on the mean loss and the proximal term is
    a <- (1 - r mu) a + (r / m) (softmax(z) - one-hot), z_i = z_i(w_global) - sum_k <(x_i, 1), (x_k, 1)> a_k.
    """
    rate, shrink = np.float32(learning_rate), np.float32(1 - learning_rate * mu)
    most = np.diff(offsets).max()
    scores = np.empty((most, weights.shape[0]), dtype=np.float32)
    steps = np.empty_like(scores)
    products = np.empty((min(most, _GRAM_ROWS), min(most, _GRAM_ROWS)), dtype=np.float32)
    local = np.empty_like(weights)
    for user in range(offsets.size - 1):
        rows, a = features[offsets[user] : offsets[user + 1]], out[offsets[user] : offsets[user + 1]]
        m = rows.shape[0]
        start, residuals, gram = scores[:m], steps[:m], products[:m]
        _logits(rows, weights, start)
        if epochs > 1 and m <= _GRAM_ROWS:
            _fill_gram(rows, gram)
        a[:] = np.float32(0)
        for epoch in range(epochs):
            if epoch == 0:
                residuals[:] = start
            elif m <= _GRAM_ROWS:
                _move_logits(start, gram, a, residuals)
            else:
                _local_weights(weights, rows, a, local)
                _logits(rows, local, residuals)
            _softmax_residuals(residuals, labels[offsets[user] : offsets[user + 1]])
            _step(a, residuals, shrink, rate / np.float32(m))


@compiled_reordering
def _step(a: F32, residuals: F32, shrink: np.float32, rate: np.float32) -> None:
    """Set a to shrink a + rate residuals."""
    for i in range(a.shape[0]):
        for c in range(a.shape[1]):
            a[i, c] = shrink * a[i, c] + rate * residuals[i, c]


@compiled_reordering
def _fill_gram(rows: F32, out: F32) -> None:
    """Inner products of the rows, each lengthened by a 1 for the bias."""
    for i in range(rows.shape[0]):
        for k in range(i + 1):
            x, y = rows[i], rows[k]
            total = np.float32(1)
            for p in range(x.size):
                total += x[p] * y[p]
            out[i, k] = out[k, i] = total


@compiled_reordering
def _move_logits(start: F32, gram: F32, a: F32, out: F32) -> None:
    """Scores at the local model, from those at the global one."""
    out[:] = start
    m, classes = np.uint64(out.shape[0]), np.uint64(out.shape[1])
    for i in range(m):
        for k in range(m):
            product = gram[i, k]
            for c in range(classes):
                out[i, c] -= product * a[k, c]


@compiled_reordering
def _local_weights(weights: F32, rows: F32, a: F32, out: F32) -> None:
    """The local model itself: w_global - sum_i a_i (x_i, 1)^T."""
    _combine(rows, a, 0, out.reshape(out.size))
    for c in range(out.shape[0]):
        for p in range(out.shape[1]):
            out[c, p] = weights[c, p] - out[c, p]


@compiled_reordering
def _logits(rows: F32, weights: F32, out: F32) -> None:
    """Scores of every row; rows by twos, classes by fives, so that a number is loaded once for several of them."""
    last = rows.shape[0] - 1
    for i in range(0, last, 2):
        _pair_logits(rows[i], rows[i + 1], weights, out[i], out[i + 1])
    if last % 2 == 0:
        _pair_logits(rows[last], rows[last], weights, out[last], out[last])


@compiled_reordering
def _pair_logits(x: F32, y: F32, weights: F32, x_out: F32, y_out: F32) -> None:
    """Scores of two rows, which may be the same."""
    classes, size = weights.shape[0], weights.shape[1] - 1
    for c in range(0, classes - 4, 5):
        w0, w1, w2, w3, w4 = weights[c], weights[c + 1], weights[c + 2], weights[c + 3], weights[c + 4]
        s0 = s1 = s2 = s3 = s4 = t0 = t1 = t2 = t3 = t4 = np.float32(0)
        for p in range(size):
            s0 += x[p] * w0[p]
            s1 += x[p] * w1[p]
            s2 += x[p] * w2[p]
            s3 += x[p] * w3[p]
            s4 += x[p] * w4[p]
            t0 += y[p] * w0[p]
            t1 += y[p] * w1[p]
            t2 += y[p] * w2[p]
            t3 += y[p] * w3[p]
            t4 += y[p] * w4[p]
        bias0, bias1, bias2, bias3, bias4 = w0[size], w1[size], w2[size], w3[size], w4[size]
        x_out[c], x_out[c + 1], x_out[c + 2] = s0 + bias0, s1 + bias1, s2 + bias2
        x_out[c + 3], x_out[c + 4] = s3 + bias3, s4 + bias4
        y_out[c], y_out[c + 1], y_out[c + 2] = t0 + bias0, t1 + bias1, t2 + bias2
        y_out[c + 3], y_out[c + 4] = t3 + bias3, t4 + bias4
    for c in range(classes - classes % 5, classes):
        w = weights[c]
        s = t = np.float32(0)
        for p in range(size):
            s += x[p] * w[p]
            t += y[p] * w[p]
        x_out[c], y_out[c] = s + w[size], t + w[size]


@compiled
def _softmax_residuals(logits: F32, labels: U8) -> None:
    """Replace every row of logits by softmax(logits) - one-hot(label).

    Exponentials are taken in one loop over all rows: a row is too short to fill vector instructions.
    """
    m, classes = np.uint64(logits.shape[0]), np.uint64(logits.shape[1])
    for i in range(m):
        top = logits[i, 0]
        for c in range(classes):
            top = max(top, logits[i, c])
        for c in range(classes):
            logits[i, c] -= top
    flat = logits.reshape(logits.size)
    for p in range(np.uint64(flat.size)):
        flat[p] = exp_negative(flat[p])
    for i in range(m):
        total = np.float32(0)
        for c in range(classes):
            total += logits[i, c]
        for c in range(classes):
            logits[i, c] /= total
        logits[i, labels[i]] -= np.float32(1)


@compiled_reordering
def write_out(features: F32, coefficients: F32, offsets: I64, start: int, out: F32) -> None:
    """Write coordinates start .. start + width - 1 of every user's combination of rows into ``out``."""
    for user in range(offsets.size - 1):
        first, last = offsets[user], offsets[user + 1]
        _combine(features[first:last], coefficients[first:last], start, out[user])


@compiled_reordering
def _combine(rows: F32, coefficients: F32, start: int, out: F32) -> None:
    """Write coordinates start .. start + width - 1 of sum_i a_i (x_i, 1)^T."""
    m, stride = rows.shape[0], rows.shape[1] + 1
    for i in range(0, m - 5, 6):
        _add_six(rows, coefficients, i, start, out)
    for i in range(m - m % 6, m):
        _add_one(rows, coefficients, i, start, out)
    for c in range(start // stride, (start + out.size) // stride):
        total = np.float32(0)
        for i in range(m):
            total += coefficients[i, c]
        out[(c + 1) * stride - 1 - start] = total


@compiled_reordering
def _add_six(rows: F32, coefficients: F32, i: int, start: int, out: F32) -> None:
    """Add six rows to the sum, so that it is loaded and stored once for all of them; the first only store it."""
    x0, x1, x2, x3, x4, x5 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3], rows[i + 4], rows[i + 5]
    stride = rows.shape[1] + 1
    for c in range(start // stride, -(-(start + out.size) // stride)):
        low, high, shift = _span(c, stride, start, out.size)
        a0, a1, a2 = coefficients[i, c], coefficients[i + 1, c], coefficients[i + 2, c]
        a3, a4, a5 = coefficients[i + 3, c], coefficients[i + 4, c], coefficients[i + 5, c]
        if i == 0:
            for p in range(low, high):
                out[p + shift] = a0 * x0[p] + a1 * x1[p] + a2 * x2[p] + a3 * x3[p] + a4 * x4[p] + a5 * x5[p]
        else:
            for p in range(low, high):
                out[p + shift] += a0 * x0[p] + a1 * x1[p] + a2 * x2[p] + a3 * x3[p] + a4 * x4[p] + a5 * x5[p]


@compiled_reordering
def _add_one(rows: F32, coefficients: F32, i: int, start: int, out: F32) -> None:
    """The same with one row."""
    x, stride = rows[i], rows.shape[1] + 1
    for c in range(start // stride, -(-(start + out.size) // stride)):
        low, high, shift = _span(c, stride, start, out.size)
        a = coefficients[i, c]
        if i == 0:
            for p in range(low, high):
                out[p + shift] = a * x[p]
        else:
            for p in range(low, high):
                out[p + shift] += a * x[p]


@inlined
def _span(c: int, stride: int, start: int, width: int) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Which features of class c are asked for, and how far on their coordinates are; unsigned, as indices are fast."""
    begin = c * stride - start
    low, high = max(-begin, 0), min(width - begin, stride - 1)
    # Backwards where the class begins before what is asked for: modulo 2^64.
    return np.uint64(low), np.uint64(max(low, high)), np.uint64(begin)
