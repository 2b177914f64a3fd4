"""The training objective under MMD's heat kernel in PyTorch, from the definitions and by nothing that zonal has:
rows divided by their norms, then

    (1 - lambda) L_inv + lambda batch D
    L_inv  mean over images and views of |x - mean over the views|^2
    D      mean over views and over all pairs, i = j included, of psi(x_i.x_j)
    psi    sum over l >= 1 of b_l P_l, b_l ~ exp(-t l (l + d - 2)) N_l, sum b_l = 1, t = 5/d, where P_l
           are Gegenbauer polynomials with P_l(1) = 1 and N_l counts the harmonics of degree l
"""
import math

import torch


def heat_weights(d):
    """b_1, b_2, ... until they no longer count in float64"""
    t, b = 5 / d, []
    while not b or b[-1] > 1e-20 * max(b):
        l = len(b) + 1
        harmonics = math.comb(l + d - 1, d - 1) - (math.comb(l + d - 3, d - 1) if l > 1 else 0)
        b.append(math.exp(-t * l * (l + d - 2)) * harmonics)
    return [value / sum(b) for value in b]


def psi(c, d):
    before, p, total = torch.ones_like(c), c, 0
    for l, weight in enumerate(heat_weights(d), 1):
        total = total + weight * p
        before, p = p, ((2 * l + d - 2) * c * p - l * before) / (l + d - 2)
    return total


def objective(z, views, weight):
    """Of projections [views batch][d], lambda = weight: the loss and its two parts"""
    d, batch = z.shape[1], z.shape[0] // views
    x = (z / z.norm(dim=1, keepdim=True)).reshape(views, batch, d)
    invariance = (x - x.mean(0)).pow(2).sum(2).mean()
    discrepancy = sum(psi(view @ view.T, d).mean() for view in x) / views
    return (1 - weight) * invariance + weight * batch * discrepancy, invariance, discrepancy
