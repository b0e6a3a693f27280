/* job.c - the tables of a job library whose trainer, engine and rewards are Python classes. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A worker of this package that runs a rank of a job finds these tables by
 * tdm_job_library_register(). Each function of a table calls the method of the same name of an
 * object of tandem._job_rank, which wraps the user's object; the methods get and return plain
 * tuples, numbers, texts and bytes, whose form is described there. A function gives the GIL away
 * when it returns, but its thread keeps its Python thread state, so that what Python libraries
 * keep for each thread survives from call to call.
 *
 * Memory of libtandem is shown to Python as an object Memory (address.c). The regions of a rank
 * live until the rank has closed and the last of their tensors has gone. */
#include "job_values.h"

#include <stdlib.h>
#include <string.h>

/* A rank, or the actor that computes rewards. */
struct rank {
    PyObject *object;     /* The Python object, owned. */
    PyObject *collective; /* The rank's group as an object, owned; NULL without one. */
    /* Tags of the regions, to which the answer of regions() refers. */
    char tags[TDM_RANK_REGIONS_MAX][TDM_REGION_TAG_BYTES_MAX];
    size_t sizes[TDM_RANK_REGIONS_MAX]; /* Sizes of the regions in bytes. */
    uint32_t regions_count;             /* Number of regions. */
    /* The tensors and slices that layout() has given, owned; NULL before. */
    struct tdm_tensor_info *tensors;
    struct tdm_slice *slices;
    PyObject *layout;   /* Result of layout(), to which the names refer; owned, NULL before. */
    PyObject *attached; /* Bytes that attach() has given last; owned, NULL before. */
    /* Name that the engine's class gave a copy last; the rest is 0. */
    char served_name[TDM_TENSOR_NAME_BYTES_MAX];
    /* Exception text of a function that cannot fail, reported by the next one; "" for none. */
    char late_failure[512];
};

/* ---- calls of Python --------------------------------------------------------------------- */

/* Takes the GIL for a function of a table. */
static PyGILState_STATE gil_take(void)
{
    static _Thread_local bool has_state;
    PyGILState_STATE gil = PyGILState_Ensure();

    if (!has_state) {
        /* Never released: the thread keeps its state. */
        has_state = true;
        (void)PyGILState_Ensure();
    }
    return gil;
}

/* Gives the GIL away and returns the status of a function: that of the current exception if
 * `is_done` is false. */
static tdm_status gil_give(PyGILState_STATE gil, bool is_done)
{
    tdm_status status = is_done ? TDM_OK : binding_failure_of_exception(true);

    PyGILState_Release(gil);
    return status;
}

/* Drops the result of a method and returns whether there was one. */
static bool is_done(PyObject *result)
{
    Py_XDECREF(result);
    return result != NULL;
}

/* Returns a tuple of `count` numbers. */
static PyObject *numbers_object(const uint64_t *numbers, uint32_t count)
{
    PyObject *tuple = PyTuple_New(count);

    for (uint32_t i = 0; tuple != NULL && i < count; i++) {
        (void)PyTuple_SetItem(tuple, i, PyLong_FromUnsignedLongLong(numbers[i]));
    }
    return tuple;
}

/* Reads a tuple of at most TDM_DIMS_MAX numbers. Returns their number; -1 with an exception. */
static int read_numbers(PyObject *tuple, uint64_t numbers[TDM_DIMS_MAX])
{
    Py_ssize_t count = PyTuple_Size(tuple);

    if (count > TDM_DIMS_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd dimensions, at most %d", count, (int)TDM_DIMS_MAX);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        numbers[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, i));
        if (PyErr_Occurred() != NULL) {
            return -1;
        }
    }
    return (int)count;
}

/* Returns (name, dtype, shape) of a tensor. */
static PyObject *tensor_object(const struct tdm_tensor_info *info)
{
    return Py_BuildValue("NiN", text_object(info->name), (int)info->dtype,
                         numbers_object(info->shape, info->dims_count));
}

/* ---- what all ranks have ----------------------------------------------------------------- */

/* Releases what a rank has. */
static void rank_free(struct rank *rank)
{
    if (rank->collective != NULL) {
        binding_object_forget(rank->collective);
    }
    Py_XDECREF(rank->collective);
    Py_XDECREF(rank->object);
    Py_XDECREF(rank->layout);
    Py_XDECREF(rank->attached);
    free(rank->tensors);
    free(rank->slices);
    free(rank);
}

/* Returns the list of (tensor, offset) of a layout that the job file names, or None. */
static PyObject *named_tensors_object(const struct tdm_rank_context *context)
{
    PyObject *list;

    if (context->tensors == NULL) {
        return Py_NewRef(Py_None);
    }
    list = PyList_New(context->tensors_count);
    for (uint32_t i = 0; list != NULL && i < context->tensors_count; i++) {
        const struct tdm_rank_tensor *tensor = &context->tensors[i];

        (void)PyList_SetItem(list, i,
                             Py_BuildValue("NK", tensor_object(&tensor->info),
                                           (unsigned long long)tensor->offset_bytes));
    }
    return list;
}

/* Creates the Python object of a rank. Returns false with an exception. */
static bool rank_init(struct rank *rank, const char *kind, const struct tdm_rank_context *context)
{
    PyObject *module = PyImport_ImportModule("tandem._job_rank");
    PyObject *group = Py_None;
    char *config = NULL;

    if (module == NULL) {
        return false;
    }
    if (tdm_config_json(context->config, &config) != TDM_OK) {
        Py_DECREF(module);
        (void)binding_raise(TDM_E_NOMEM);
        return false;
    }
    if (context->group != NULL) {
        rank->collective = binding_collective_create(context->group, true);
        group = rank->collective;
    }
    if (group != NULL) {
        rank->object = PyObject_CallMethod(
            module, "open_rank", "ssIIIKONKz", kind, config, context->rank, context->ranks_count,
            context->engine, (unsigned long long)context->seed, group,
            named_tensors_object(context), (unsigned long long)context->tensors_bytes,
            context->module_folder);
    }
    free(config);
    Py_DECREF(module);
    return rank->object != NULL;
}

/* Implements open() of all tables. */
static tdm_status rank_open(const char *kind, const struct tdm_rank_context *context,
                            void **state_out)
{
    struct rank *rank = calloc(1, sizeof(*rank));
    PyGILState_STATE gil;
    bool done;
    tdm_status status;

    if (rank == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a rank");
    }
    gil = gil_take();
    done = rank_init(rank, kind, context);
    status = done ? TDM_OK : binding_failure_of_exception(true);
    if (done) {
        *state_out = rank;
    } else {
        rank_free(rank);
    }
    (void)gil_give(gil, true);
    return status;
}

/* Implements close() of all tables. */
static void rank_close(void *state)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();

    if (!is_done(PyObject_CallMethod(rank->object, "close", NULL))) {
        PyErr_Print();
    }
    rank_free(rank);
    (void)gil_give(gil, true);
}

/* Returns the policy of a region from two flags of Python. */
static enum tdm_region_policy region_policy(int keep, int outside)
{
    if (outside) {
        return keep ? TDM_REGION_OUTSIDE_KEEP : TDM_REGION_OUTSIDE_DROP;
    }
    return keep ? TDM_REGION_KEEP : TDM_REGION_DROP;
}

/* Reads the list of (tag, size, keep, outside). Returns false with an exception. */
static bool read_regions(struct rank *rank, PyObject *list,
                         struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX])
{
    Py_ssize_t count = PyList_Size(list);

    if (count < 0 || count > TDM_RANK_REGIONS_MAX) {
        PyErr_Format(PyExc_ValueError, "%zd regions, at most %d", count, (int)TDM_RANK_REGIONS_MAX);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long size_bytes;
        const char *tag;
        int keep;
        int outside;

        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "sKpp", &tag, &size_bytes, &keep,
                              &outside)) {
            return false;
        }
        (void)strncpy(rank->tags[i], tag, sizeof(rank->tags[i]) - 1);
        rank->sizes[i] = (size_t)size_bytes;
        specs[i] =
            (struct tdm_region_spec){rank->tags[i], rank->sizes[i], region_policy(keep, outside)};
    }
    rank->regions_count = (uint32_t)count;
    return true;
}

/* Implements regions() of both tables. */
static tdm_status rank_regions(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                               uint32_t *count_out)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();
    PyObject *list = PyObject_CallMethod(rank->object, "regions", NULL);
    bool done = list != NULL && read_regions(rank, list, specs);

    Py_XDECREF(list);
    *count_out = rank->regions_count;
    return gil_give(gil, done);
}

/* Implements start() of both tables. */
static tdm_status rank_start(void *state, void *const *addresses)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();
    PyObject *list = PyList_New(rank->regions_count);

    for (uint32_t i = 0; list != NULL && i < rank->regions_count; i++) {
        (void)PyList_SetItem(list, i, PyLong_FromVoidPtr(addresses[i]));
    }
    return gil_give(gil, list != NULL &&
                             is_done(PyObject_CallMethod(rank->object, "start", "(N)", list)));
}

/* Calls a method of a rank with the tag of outside memory. */
static tdm_status rank_call_with_tag(void *state, const char *method, const char *tag)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();

    return gil_give(gil, is_done(PyObject_CallMethod(rank->object, method, "s", tag)));
}

/* Implements resume() of both tables. */
static tdm_status rank_resume(void *state, const char *tag)
{
    return rank_call_with_tag(state, "resume", tag);
}

/* Implements pause() of both tables. */
static tdm_status rank_pause(void *state, const char *tag)
{
    return rank_call_with_tag(state, "pause", tag);
}

/* Returns 1 if the object of a rank says that the user's class has an optional method, by an
 * attribute such as "has_layout"; else 0, or -1 with an exception. */
static int rank_has(const struct rank *rank, const char *attribute)
{
    PyObject *flag = PyObject_GetAttrString(rank->object, attribute);
    int has = flag == NULL ? -1 : PyObject_IsTrue(flag);

    Py_XDECREF(flag);
    return has;
}

/* Reads one (tensor, flat, offset, extent, address, dtype, scales) of a list. Returns false with an
 * exception. */
static bool read_slice(PyObject *tuple, struct tdm_slice *slice)
{
    unsigned long long address;
    unsigned long long scales;
    PyObject *offset;
    PyObject *extent;
    unsigned int tensor;
    int dtype;
    int flat;

    if (!PyArg_ParseTuple(tuple, "IpO!O!KiK", &tensor, &flat, &PyTuple_Type, &offset, &PyTuple_Type,
                          &extent, &address, &dtype, &scales)) {
        return false;
    }
    slice->tensor = tensor;
    slice->flat = flat ? 1 : 0;
    slice->address = (const void *)(uintptr_t)address;
    slice->dtype = (enum tdm_dtype)dtype;
    slice->scales = (const void *)(uintptr_t)scales;
    return read_numbers(offset, slice->offset) >= 0 && read_numbers(extent, slice->extent) >= 0;
}

/* Reads a list of slices into rank->slices. Returns false with an exception. */
static bool read_slices(struct rank *rank, PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);

    free(rank->slices);
    rank->slices = count < 0 ? NULL : calloc((size_t)count + 1, sizeof(*rank->slices));
    if (rank->slices == NULL) {
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!read_slice(PyList_GetItem(list, i), &rank->slices[i])) {
            return false;
        }
    }
    return true;
}

/* Reads a list of (name, dtype, shape) into rank->tensors. Returns false with an exception. */
static bool read_tensors(struct rank *rank, PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);

    free(rank->tensors);
    rank->tensors = count < 0 ? NULL : calloc((size_t)count + 1, sizeof(*rank->tensors));
    if (rank->tensors == NULL) {
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        struct tdm_tensor_info *info = &rank->tensors[i];
        PyObject *shape;
        int dtype;
        int dims;

        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "siO!", &info->name, &dtype, &PyTuple_Type,
                              &shape)) {
            return false;
        }
        dims = read_numbers(shape, info->shape);
        if (dims < 0) {
            return false;
        }
        info->dtype = (enum tdm_dtype)dtype;
        info->dims_count = (uint32_t)dims;
    }
    return true;
}

/* ---- the trainer ------------------------------------------------------------------------- */

static tdm_status trainer_logprobs(void *state, const struct tdm_batch *batch,
                                   float *const *logprobs);

/* The table of the trainer. Its logprobs() is NULL if the class of this process has none, which is
 * known once the rank is open; a process has one rank. */
static struct tdm_trainer_ops trainer_ops;

/* Implements open() of the trainer's table. */
static tdm_status trainer_open(const struct tdm_rank_context *context, void **state_out)
{
    PyGILState_STATE gil;
    int has_logprobs;

    TDM_TRY(rank_open("trainer", context, state_out));
    gil = gil_take();
    has_logprobs = rank_has(*state_out, "has_logprobs");
    trainer_ops.logprobs = has_logprobs == 1 ? trainer_logprobs : NULL;
    return gil_give(gil, has_logprobs >= 0);
}

/* Implements layout() of the trainer's table. */
static tdm_status trainer_layout(void *state, const struct tdm_tensor_info **tensors_out,
                                 uint32_t *tensors_count_out, const struct tdm_slice **slices_out,
                                 uint32_t *slices_count_out)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();
    PyObject *tensors = NULL;
    PyObject *slices = NULL;
    bool done;

    Py_XDECREF(rank->layout);
    rank->layout = PyObject_CallMethod(rank->object, "layout", NULL);
    done = rank->layout != NULL &&
           PyArg_ParseTuple(rank->layout, "O!O!", &PyList_Type, &tensors, &PyList_Type, &slices) &&
           read_tensors(rank, tensors) && read_slices(rank, slices);
    if (done) {
        *tensors_out = rank->tensors;
        *tensors_count_out = (uint32_t)PyList_Size(tensors);
        *slices_out = rank->slices;
        *slices_count_out = (uint32_t)PyList_Size(slices);
    }
    return gil_give(gil, done);
}

/* Implements step() of the trainer's table. */
static tdm_status trainer_step(void *state, const struct tdm_batch *batch,
                               struct tdm_metrics *metrics)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();
    PyObject *samples = binding_samples_object(batch);
    PyObject *list = samples == NULL
                         ? NULL
                         : PyObject_CallMethod(rank->object, "step", "iIIN", batch->supervised,
                                               batch->step, batch->steps_count, samples);
    bool done = list != NULL && binding_read_metrics(list, metrics);

    Py_XDECREF(list);
    return gil_give(gil, done);
}

/* Implements logprobs() of the trainer's table. */
static tdm_status trainer_logprobs(void *state, const struct tdm_batch *batch,
                                   float *const *logprobs)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();
    PyObject *samples = binding_samples_object(batch);
    PyObject *list = samples == NULL
                         ? NULL
                         : PyObject_CallMethod(rank->object, "logprobs", "IIN", batch->step,
                                               batch->steps_count, samples);
    bool done = list != NULL;

    if (done && PyList_Size(list) != (Py_ssize_t)batch->samples_count) {
        PyErr_Format(PyExc_ValueError, "logprobs() returned %zd arrays for %u samples",
                     PyList_Size(list), batch->samples_count);
        done = false;
    }
    for (uint32_t i = 0; done && i < batch->samples_count; i++) {
        done = binding_read_logprobs(PyList_GetItem(list, i), &batch->samples[i], i, logprobs[i]);
    }
    Py_XDECREF(list);
    return gil_give(gil, done);
}

/* Implements save() and load() of the trainer's table. */
static tdm_status trainer_call_with_directory(void *state, const char *method, const char *path)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();
    PyObject *directory = PyUnicode_DecodeFSDefault(path);

    return gil_give(gil, directory != NULL &&
                             is_done(PyObject_CallMethod(rank->object, method, "N", directory)));
}

/* Implements save() of the trainer's table. */
static tdm_status trainer_save(void *state, const char *directory)
{
    return trainer_call_with_directory(state, "save", directory);
}

/* Implements load() of the trainer's table. */
static tdm_status trainer_load(void *state, const char *directory)
{
    return trainer_call_with_directory(state, "load", directory);
}

/* Returns a list of (name, dtype, shape, stride, address). */
static PyObject *views_object(const struct tdm_tensor_view *views, uint32_t count)
{
    PyObject *list = PyList_New(count);

    for (uint32_t i = 0; list != NULL && i < count; i++) {
        const struct tdm_tensor_info *info = &views[i].info;

        (void)PyList_SetItem(list, i,
                             Py_BuildValue("NiNNN", text_object(info->name), (int)info->dtype,
                                           numbers_object(info->shape, info->dims_count),
                                           numbers_object(views[i].stride, info->dims_count),
                                           PyLong_FromVoidPtr((void *)(uintptr_t)views[i].data)));
    }
    return list;
}

/* Implements attach() of the trainer's table. */
static tdm_status trainer_attach(void *state, const struct tdm_update_bucket *bucket,
                                 struct tdm_bytes *bytes_out)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();
    PyObject *has_attach = PyObject_GetAttrString(rank->object, "has_attach");
    PyObject *views;
    bool done;

    if (has_attach == NULL || PyObject_IsTrue(has_attach) != 1) {
        done = has_attach != NULL;
        Py_XDECREF(has_attach);
        return gil_give(gil, done);
    }
    Py_DECREF(has_attach);
    views = bucket->tensors == NULL ? Py_NewRef(Py_None)
                                    : views_object(bucket->tensors, bucket->tensors_count);
    Py_XDECREF(rank->attached);
    rank->attached = views == NULL
                         ? NULL
                         : PyObject_CallMethod(rank->object, "attach", "IINI", bucket->index,
                                               bucket->buckets_count, views, bucket->engine_rank);
    done = rank->attached != NULL;
    if (done) {
        char *data;
        Py_ssize_t size_bytes;

        done = PyBytes_AsStringAndSize(rank->attached, &data, &size_bytes) == 0;
        if (done) {
            *bytes_out = (struct tdm_bytes){data, (size_t)size_bytes};
        }
    }
    return gil_give(gil, done);
}

/* ---- the engine -------------------------------------------------------------------------- */

static tdm_status engine_layout(void *state, const struct tdm_tensor_info *tensors,
                                uint32_t tensors_count, const struct tdm_slice **slices_out,
                                uint32_t *slices_count_out);

static tdm_status engine_served(void *state, const struct tdm_tensor_info *tensor,
                                const struct tdm_slice *slice, void *data, size_t size_bytes,
                                const char **name_out);

static tdm_status engine_gathered(void *state, uint32_t bucket, uint32_t buckets_count,
                                  const struct tdm_bytes *attached, uint32_t ranks_count);

/* The table of the engine. Its layout(), served() and gathered() are NULL if the class of this
 * process has none, which is known once the rank is open; a process has one rank. */
static struct tdm_engine_ops engine_ops;

/* Implements open() of the engine's table. */
static tdm_status engine_open(const struct tdm_rank_context *context, void **state_out)
{
    PyGILState_STATE gil;
    int has_layout;
    int has_served;
    int has_gathered;

    TDM_TRY(rank_open("engine", context, state_out));
    gil = gil_take();
    has_layout = rank_has(*state_out, "has_layout");
    has_served = has_layout < 0 ? -1 : rank_has(*state_out, "has_served");
    has_gathered = has_served < 0 ? -1 : rank_has(*state_out, "has_gathered");
    engine_ops.layout = has_layout == 1 ? engine_layout : NULL;
    engine_ops.served = has_served == 1 ? engine_served : NULL;
    engine_ops.gathered = has_gathered == 1 ? engine_gathered : NULL;
    return gil_give(gil, has_gathered >= 0);
}

/* Implements attached() of the engine's table. */
static tdm_status engine_attached(void *state, uint32_t bucket, uint32_t buckets_count,
                                  struct tdm_bytes bytes)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();

    return gil_give(
        gil, is_done(PyObject_CallMethod(rank->object, "attached", "IIy#", bucket, buckets_count,
                                         (const char *)bytes.data, (Py_ssize_t)bytes.size_bytes)));
}

/* Implements gathered() of the engine's table. */
static tdm_status engine_gathered(void *state, uint32_t bucket, uint32_t buckets_count,
                                  const struct tdm_bytes *attached, uint32_t ranks_count)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();
    PyObject *list = PyList_New(ranks_count);
    bool done = list != NULL;

    for (uint32_t i = 0; done && i < ranks_count; i++) {
        PyObject *bytes =
            PyBytes_FromStringAndSize(attached[i].data, (Py_ssize_t)attached[i].size_bytes);

        done = bytes != NULL;
        (void)PyList_SetItem(list, i, bytes);
    }
    done = done && is_done(PyObject_CallMethod(rank->object, "gathered", "IIO", bucket,
                                               buckets_count, list));
    Py_XDECREF(list);
    return gil_give(gil, done);
}

/* Implements load() of the engine's table. */
static tdm_status engine_load(void *state, void *weights, const struct tdm_tensor_view *tensors,
                              uint32_t tensors_count)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();
    PyObject *list = views_object(tensors, tensors_count);

    return gil_give(gil, list != NULL &&
                             is_done(PyObject_CallMethod(rank->object, "load", "NN",
                                                         PyLong_FromVoidPtr(weights), list)));
}

/* Implements complete() of the engine's table. */
static tdm_status engine_complete(void *state)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();
    PyObject *missing = PyObject_CallMethod(rank->object, "complete", NULL);
    const char *text =
        missing == NULL || missing == Py_None ? NULL : PyUnicode_AsUTF8AndSize(missing, NULL);
    bool done = missing == Py_None || text != NULL;
    tdm_status status = done ? TDM_OK : binding_failure_of_exception(true);

    if (text != NULL) {
        status = tdm_fail(TDM_E_STATE, "%s", text);
    } else if (status == TDM_OK && rank->late_failure[0] != '\0') {
        status = tdm_fail(TDM_E_METHOD, "%s", rank->late_failure);
    }
    Py_XDECREF(missing);
    (void)gil_give(gil, true);
    return status;
}

/* Implements begin() of the engine's table, which cannot fail: complete() reports an exception. */
static void engine_begin(void *state)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();

    rank->late_failure[0] = '\0';
    if (!is_done(PyObject_CallMethod(rank->object, "begin", NULL))) {
        (void)binding_failure_of_exception(true);
        (void)strncpy(rank->late_failure, tdm_error_detail(), sizeof(rank->late_failure) - 1);
    }
    (void)gil_give(gil, true);
}

/* Implements flush_cache() of the engine's table. */
static tdm_status engine_flush_cache(void *state)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();

    return gil_give(gil, is_done(PyObject_CallMethod(rank->object, "flush_cache", NULL)));
}

/* Implements generate() of the engine's table. */
static tdm_status engine_generate(void *state, const struct tdm_prompt *prompts,
                                  uint32_t prompts_count, const struct tdm_sampling *sampling,
                                  struct tdm_completion *completions)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();
    PyObject *list = PyList_New(prompts_count);
    PyObject *result = NULL;
    bool done;

    for (uint32_t i = 0; list != NULL && i < prompts_count; i++) {
        (void)PyList_SetItem(
            list, i,
            Py_BuildValue("NK", text_object(prompts[i].text), (unsigned long long)prompts[i].seed));
    }
    if (list != NULL) {
        result = PyObject_CallMethod(rank->object, "generate", "NdI", list, sampling->temperature,
                                     sampling->tokens_max);
    }
    done = result != NULL &&
           binding_read_completions(result, prompts_count, sampling->tokens_max, completions);
    Py_XDECREF(result);
    return gil_give(gil, done);
}

/* Implements layout() of the engine's table. */
static tdm_status engine_layout(void *state, const struct tdm_tensor_info *tensors,
                                uint32_t tensors_count, const struct tdm_slice **slices_out,
                                uint32_t *slices_count_out)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();
    PyObject *list = PyList_New(tensors_count);
    PyObject *slices = NULL;
    bool done;

    for (uint32_t i = 0; list != NULL && i < tensors_count; i++) {
        (void)PyList_SetItem(list, i, tensor_object(&tensors[i]));
    }
    if (list != NULL) {
        slices = PyObject_CallMethod(rank->object, "layout", "(N)", list);
    }
    done = slices != NULL && read_slices(rank, slices);
    if (done) {
        *slices_out = rank->slices;
        *slices_count_out = (uint32_t)PyList_Size(slices);
    }
    Py_XDECREF(slices);
    return gil_give(gil, done);
}

/* Returns (offset, extent, flat, address, dtype) of a slice, or None for NULL. */
static PyObject *slice_object(const struct tdm_tensor_info *tensor, const struct tdm_slice *slice)
{
    uint32_t dims_count = slice != NULL && slice->flat != 0 ? 1 : tensor->dims_count;

    if (slice == NULL) {
        return Py_NewRef(Py_None);
    }
    return Py_BuildValue("NNiNi", numbers_object(slice->offset, dims_count),
                         numbers_object(slice->extent, dims_count), slice->flat != 0,
                         PyLong_FromVoidPtr((void *)(uintptr_t)slice->address), (int)slice->dtype);
}

/* Copies (name or None, bytes) of what an engine serves. Returns false with an exception. */
static bool read_served(struct rank *rank, PyObject *tuple, const char *tensor, void *data,
                        size_t size_bytes, const char **name_out)
{
    Py_ssize_t given_bytes;
    const char *name;
    const char *given;

    if (!PyArg_ParseTuple(tuple, "zy#", &name, &given, &given_bytes)) {
        return false;
    }
    if (given_bytes != (Py_ssize_t)size_bytes) {
        PyErr_Format(PyExc_ValueError, "served(\"%s\") returned %zd bytes, the part has %zu",
                     tensor, given_bytes, size_bytes);
        return false;
    }
    memcpy(data, given, size_bytes);
    if (name != NULL) {
        (void)strncpy(rank->served_name, name, sizeof(rank->served_name) - 1);
        *name_out = rank->served_name;
    }
    return true;
}

/* Implements served() of the engine's table. */
static tdm_status engine_served(void *state, const struct tdm_tensor_info *tensor,
                                const struct tdm_slice *slice, void *data, size_t size_bytes,
                                const char **name_out)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();
    PyObject *copy = PyObject_CallMethod(rank->object, "served", "NN", tensor_object(tensor),
                                         slice_object(tensor, slice));
    bool has_copy = copy != NULL && copy != Py_None;
    bool done = copy != NULL &&
                (!has_copy || read_served(rank, copy, tensor->name, data, size_bytes, name_out));

    Py_XDECREF(copy);
    TDM_TRY(gil_give(gil, done));
    return has_copy ? TDM_OK : TDM_E_NOT_FOUND;
}

/* ---- rewards ----------------------------------------------------------------------------- */

/* Implements open() of the table of rewards. */
static tdm_status rewards_open(const struct tdm_rank_context *context, void **state_out)
{
    return rank_open("rewards", context, state_out);
}

/* Implements score() of the table of rewards. */
static tdm_status rewards_score(void *state, struct tdm_reward_request *requests,
                                uint32_t requests_count)
{
    struct rank *rank = state;
    PyGILState_STATE gil = gil_take();
    PyObject *list = binding_requests_object(requests, requests_count);
    PyObject *results =
        list == NULL ? NULL : PyObject_CallMethod(rank->object, "score", "(N)", list);
    bool done = results != NULL && PyList_Size(results) == (Py_ssize_t)requests_count;

    for (uint32_t i = 0; done && i < requests_count; i++) {
        done = binding_read_reward(PyList_GetItem(results, i), &requests[i]);
    }
    if (!done && PyErr_Occurred() == NULL) {
        PyErr_SetString(PyExc_ValueError, "score() returned another number of rewards");
    }
    Py_XDECREF(results);
    return gil_give(gil, done);
}

/* ---- the tables -------------------------------------------------------------------------- */

static struct tdm_trainer_ops trainer_ops = {.size_bytes = sizeof(trainer_ops),
                                             .open = trainer_open,
                                             .regions = rank_regions,
                                             .start = rank_start,
                                             .layout = trainer_layout,
                                             .step = trainer_step,
                                             .save = trainer_save,
                                             .load = trainer_load,
                                             .attach = trainer_attach,
                                             .close = rank_close,
                                             .resume = rank_resume,
                                             .pause = rank_pause,
                                             .logprobs = trainer_logprobs};
static struct tdm_engine_ops engine_ops = {.size_bytes = sizeof(engine_ops),
                                           .open = engine_open,
                                           .regions = rank_regions,
                                           .start = rank_start,
                                           .load = engine_load,
                                           .attached = engine_attached,
                                           .complete = engine_complete,
                                           .begin = engine_begin,
                                           .flush_cache = engine_flush_cache,
                                           .generate = engine_generate,
                                           .close = rank_close,
                                           .layout = engine_layout,
                                           .resume = rank_resume,
                                           .pause = rank_pause,
                                           .served = engine_served};
static const struct tdm_reward_ops reward_ops = {.size_bytes = sizeof(reward_ops),
                                                 .open = rewards_open,
                                                 .score = rewards_score,
                                                 .close = rank_close};
static const struct tdm_job_library python_library = {.size_bytes = sizeof(python_library),
                                                      .name = "python",
                                                      .trainer = &trainer_ops,
                                                      .engine = &engine_ops,
                                                      .devices = "host cuda",
                                                      .rewards = &reward_ops};

bool binding_job_init(PyObject *module)
{
    (void)module;
    if (tdm_job_library_register(&python_library) != TDM_OK) {
        (void)binding_raise(TDM_E_EXISTS);
        return false;
    }
    return true;
}
