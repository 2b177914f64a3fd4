/*
 * The curves of a run for TensorBoard, RUN/events/events.out.tfevents.NNNNNN: what metrics.jsonl
 * says, by these tags:
 *
 *     step    loss/total, loss/invariance, loss/discrepancy, optimiser/learning_rate,
 *             optimiser/gradient_norm, speed/images_per_second
 *     monitor monitor/mean_cosine, monitor/effective_rank, monitor/rho
 *     eval    eval/retrieval_r1, _r3, _r5, _map, or eval/knn_accuracy
 *     probe   eval/probe_accuracy
 *
 * Curves are a copy: where they cannot be written, the log says so once and the run goes on without
 * them. All functions accept a NULL log, which is a run without curves.
 */
#ifndef ZONAL_TRAIN_EVENT_LOG_H
#define ZONAL_TRAIN_EVENT_LOG_H

#include <stdint.h>

#include "core/error.h"

struct zonal__step_line;
struct zonal__monitor;
struct zonal__online_result;

typedef struct zonal__event_log zonal__event_log;

/* Begins a new file in RUN/events, after the files there have been cut back to "step". */
zonal_status zonal__event_log_open(const char *run, int64_t step, zonal__event_log **out);
void zonal__event_log_close(zonal__event_log *log);

void zonal__event_log_step(zonal__event_log *log, const struct zonal__step_line *line);
void zonal__event_log_monitor(zonal__event_log *log, int64_t step,
                              const struct zonal__monitor *monitor);
void zonal__event_log_eval(zonal__event_log *log, int64_t step,
                           const struct zonal__online_result *result);
void zonal__event_log_probe(zonal__event_log *log, int64_t step, double accuracy);
void zonal__event_log_sync(zonal__event_log *log);

#endif
