/*
 * The tables for training of this build's backends, made as the list of backend/registry.h is.
 */
#ifndef ZONAL_BACKEND_TRAINING_REGISTRY_H
#define ZONAL_BACKEND_TRAINING_REGISTRY_H

#include "backend/training/tables.h"

extern const zonal__training_tables *(*const zonal__trainings_built[])(void); /* ends with NULL */

#endif
