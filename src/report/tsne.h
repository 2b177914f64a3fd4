/*
 * A map of a few hundred rows that keeps neighbours together: t-SNE, exact, without chance.
 *
 * With p_ij the chances that i takes j for its neighbour, Gaussian in the distance of the rows with
 * a width for each i such that it has about "perplexity" neighbours, symmetrised, and q_ij
 * proportional to 1/(1 + |y_i - y_j|^2), it minimises KL(p || q) = sum p_ij log(p_ij/q_ij) by
 * gradient descent with momentum, from the coordinates that are there already: the principal
 * components, so that large distances mean something too. (van der Maaten and Hinton, "Visualizing
 * data using t-SNE", JMLR 2008; Kobak and Berens, "The art of using t-SNE for single-cell
 * transcriptomics", 2019, for the start and the rate.) Quadratic in n in time and memory.
 */
#ifndef ZONAL_REPORT_TSNE_H
#define ZONAL_REPORT_TSNE_H

#include <stdint.h>

#include "core/error.h"

/* y [n][2]: in, the coordinates to start from, of any scale; out, the map. n >= 4. perplexity 0:
 * 30, but never more than a third of the others. */
zonal_status zonal__tsne(int64_t n, int64_t dim, const double *x, double perplexity, double *y);

/* For tests: the symmetrised chances p [n][n], which add up to 1; KL(p || q) of a map, with its
 * gradient [n][2] where it is not NULL ("scratch" [n][n]). */
zonal_status zonal__tsne_chances(int64_t n, int64_t dim, const double *x, double perplexity,
                                 double *p);
double zonal__tsne_loss(int64_t n, const double *p, const double *y, double *scratch,
                        double *gradient);

#endif
