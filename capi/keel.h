#ifndef KEEL_H
#define KEEL_H
// keel from C: a model that learns from the memory of another code, in its processes, while that code runs. C99.
//
// Objects are handles, which are made by keel_..._create() and given back by keel_..._destroy(). A handle is checked
// whenever it is used: NULL, one of another kind and one that has been destroyed are errors, not crashes. Every
// function returns a status. Where that is not KEEL_OK, keel_last_error() says what is wrong, where, and what to do;
// nothing has been written to the results, and the host may go on. Nothing ends the process, nothing is thrown, and
// nothing is printed.
//
// Options are settings: a key and a value, as text, of docs/config.md. No structure of options crosses this interface,
// so that an option that is added changes no layout.
//
// Threads: different threads may work with different contexts, and each has its own last error. A context and the
// arrays and models made from it are for one thread at a time; a call that comes meanwhile from another one is an
// error. With MPI only the thread that may call MPI may call keel (MPI_THREAD_FUNNELED is enough).
//
// Ranks: what is marked "collective" is called by all ranks of the context, in the same order.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_VERSION_MAJOR 0
#define KEEL_VERSION_MINOR 1
#define KEEL_VERSION_PATCH 0

typedef enum keel_status {
  KEEL_OK = 0,
  KEEL_ERROR_INPUT = 1,        // a value of the caller's: a shape, a setting, a malformed file
  KEEL_ERROR_IO = 2,           // the operating system refused: a missing file, a full disk
  KEEL_ERROR_NUMERIC = 3,      // numbers that are not finite
  KEEL_ERROR_UNSUPPORTED = 4,  // this build or device does not offer it
  KEEL_ERROR_INTERRUPTED = 5,  // a signal asked for an orderly stop
  KEEL_ERROR_PEER = 6,         // another rank failed, left, or does something else; the context is of no more use
  KEEL_ERROR_INTERNAL = 7,     // a broken promise inside keel
  KEEL_ERROR_MEMORY = 8,       // there is not enough
  KEEL_ERROR_HANDLE = 9        // a handle that is NULL, of another kind, or destroyed
} keel_status;

// The numbers of an array. i32 and i64 are for classes and tokens.
typedef enum keel_dtype { KEEL_F32 = 0, KEEL_F64 = 1, KEEL_I32 = 2, KEEL_I64 = 3 } keel_dtype;
// Whose memory an array is: the processor's, or that of the context's GPU, which a context on the processor has not.
typedef enum keel_place { KEEL_HOST = 0, KEEL_DEVICE = 1 } keel_place;
typedef enum keel_log_level { KEEL_LOG_INFO = 0, KEEL_LOG_WARNING = 1, KEEL_LOG_ERROR = 2 } keel_log_level;

typedef struct keel_settings keel_settings;
typedef struct keel_context keel_context;
typedef struct keel_array keel_array;
typedef struct keel_batch keel_batch;
typedef struct keel_model keel_model;
typedef struct keel_team keel_team;

// What keel calls of the host's must not call keel: each such call is refused with KEEL_ERROR_INPUT. `message` is valid
// during the call.
typedef void (*keel_log_function)(int level, const char* message, void* user);

// The version of the library that is linked; the macros have the version of this header. Before 1.0 a minor version may
// change functions.
keel_status keel_version(int* major, int* minor, int* patch);
// What was wrong with the last call of this thread that failed; "" where none has. Valid until this thread's next
// failure.
const char* keel_last_error(void);
// "KEEL_ERROR_IO"; for a number that is no status "unknown status".
const char* keel_status_name(int status);

// --- Settings -------------------------------------------------------------------------------------------------------

// Every key at its default.
keel_status keel_settings_create(keel_settings** settings);
// Reads a configuration as `keel train` does. Values that are set one by one, before or after, replace its values. Its
// sections data, eval, checkpoint and log have no effect here; for batch see keel_train_accumulate.
keel_status keel_settings_load(keel_settings* settings, const char* yaml_file);
// For example ("optimizer.type", "Lion"), ("strategy", "zero2"), ("clip", "1"), ("threads", "4"), ("device", "cuda"). A
// section replaces what was set of it: ("optimizer", "{type: SGD, momentum: 0.9}").
// The values are checked where they are used, all at once, each by itself and together.
keel_status keel_settings_set(keel_settings* settings, const char* key, const char* value);
// The function gets the messages of every context that is made with these settings; NULL: nobody gets them. The
// context's threads call it, one at a time.
keel_status keel_settings_log(keel_settings* settings, keel_log_function function, void* user);
// Sets *settings to NULL, as all of these functions do. One that is NULL already is no error.
keel_status keel_settings_destroy(keel_settings** settings);

// --- Contexts -------------------------------------------------------------------------------------------------------

// The context of a rank alone. Of the settings (NULL: defaults) device, threads and kernels matter. Unless they name a
// device, it is a GPU where this build drives one and the machine has one.
keel_status keel_context_create(const keel_settings* settings, keel_context** context);
// Makes each process of an MPI communicator a rank. `communicator` is its Fortran handle, MPI_Comm_c2f(comm); it is
// duplicated. Destroy the context before MPI_Finalize. Collective.
keel_status keel_context_create_mpi(int64_t communicator, const keel_settings* settings, keel_context** context);
// Makes this process one of `size` ranks, which find each other without MPI as those of `keel launch --tcp` do: rank 0
// listens at `address` ("node7:4000", the same on all ranks), and the others go there. `token` (NULL: none) is the same
// on all ranks of a run; a process that brings another one is sent away. Ranks wait for each other so many seconds,
// here and later. For networks that trust each other. Collective.
keel_status keel_context_create_tcp(int rank, int size, const char* address, const char* token, double timeout,
                                    const keel_settings* settings, keel_context** context);
// A team of `size` ranks that are threads of this process, and how many seconds they wait for each other. One thread
// makes the team; each thread makes the context of its own rank with it, which is collective, and uses no other one.
// The team may be destroyed once all have.
keel_status keel_team_create(int size, double timeout, keel_team** team);
keel_status keel_context_create_thread(keel_team* team, int rank, const keel_settings* settings,
                                       keel_context** context);
keel_status keel_team_destroy(keel_team** team);
// Its place among the ranks, and how many there are. Either may be NULL.
keel_status keel_context_ranks(const keel_context* context, int* rank, int* size);
// Tells the other ranks that this one cannot go on: what they wait for ends with KEEL_ERROR_PEER and this reason. The
// context is of no more use. Not collective.
keel_status keel_context_fail(keel_context* context, const char* reason);
// The arrays and models made from it stay valid, and keep what they need.
keel_status keel_context_destroy(keel_context** context);

// --- Arrays ---------------------------------------------------------------------------------------------------------

// The host's memory as an array, without a copy. The memory is read and written in the calls that get the array, and
// must stay until the array is destroyed. Element (i, j, ...) lies at memory[i * strides[0] + j * strides[1] + ...].
// Strides count elements; NULL stands for a dense array in row-major order. So the inner part of a field is an array,
// and so is a column-major one: Fortran's a(features, samples) is a dense (samples, features).
//
// What is copied: f64 is converted where it is used, which takes the memory of the converted array; so is f32 for a
// model in bf16 or fp16. KEEL_HOST memory travels to a GPU and back. f32 for an fp32 model on the processor, and
// KEEL_DEVICE memory, with any strides, are used as they lie.
keel_status keel_array_create(const keel_context* context, void* memory, int dtype, int place, int rank,
                              const int64_t* shape, const int64_t* strides, keel_array** array);
keel_status keel_array_destroy(keel_array** array);

// --- Batches --------------------------------------------------------------------------------------------------------

// Arrays for a model with several inputs and outputs, or samples that do not weigh the same. It may be used again and
// again: its arrays are read where they lie. It keeps them, so their handles may be destroyed before it.
keel_status keel_batch_create(const keel_context* context, keel_batch** batch);
// An input by its name; NULL: the next one of those that were given so, in the model's order. A name that was given
// before gets the new array. Names are looked at where the batch is used.
keel_status keel_batch_input(keel_batch* batch, const char* name, const keel_array* array);
// The same of what an output should be; for keel_infer_batch() where it is written.
keel_status keel_batch_target(keel_batch* batch, const char* name, const keel_array* array);
// How much each sample weighs in means over samples, f32 or f64 (samples...): finite, and 0 or more.
keel_status keel_batch_weights(keel_batch* batch, const keel_array* array);
keel_status keel_batch_destroy(keel_batch** batch);

// --- Models ---------------------------------------------------------------------------------------------------------
//
// A model whose training needs more memory than the machine has, or than is free on the context's GPU, is refused
// before anything is allocated; the key check_memory goes on regardless.

// Linear layers with an activation between them. widths: {inputs, hidden..., outputs}, `count` of them. activation:
// relu, gelu, gelu_tanh, silu, tanh or sigmoid. loss: "mse", the mean of squared differences, or "cross_entropy", whose
// targets are classes in [0, outputs). Of the settings (NULL: the context's) seed, strategy, precision, optimizer,
// clip, sharding, loss_scale and scheduler matter. Collective.
keel_status keel_model_create_mlp(keel_context* context, const keel_settings* settings, const int64_t* widths,
                                  int count, const char* activation, const char* loss, keel_model** model);
// A model from a text of items with a semicolon or a line's end between them: inputs, then layers, then outputs.
//
//   input NAME WIDTH                numbers of a sample; all inputs are put together
//   embedding NAME CLASSES WIDTH    a whole number of a sample, i32 or i64, as a row of a table
//   dense WIDTH [ACTIVATION]        a linear layer, and an activation as above
//   ACTIVATION, layernorm, rmsnorm, dropout PROBABILITY
//   output NAME WIDTH               a linear layer of its own on what the layers give
//
// "dense 32 tanh; dense 1" has neither inputs nor outputs: `inputs` says how many numbers a sample has (0 for a text
// with inputs), and the last layer's numbers are the output. The same as keel_model_create_mlp() with {inputs, 32, 1}
// then. A model without parameters answers and is evaluated, but is not trained. An array of an input is (samples...,
// WIDTH), of an embedding (samples...), of an output (samples..., WIDTH). An error names the character of the text.
// Dropout draws by rank, step, part and place. Collective.
keel_status keel_model_create_text(keel_context* context, const keel_settings* settings, const char* text,
                                   int64_t inputs, const char* loss, keel_model** model);
// The model that the section `model` describes; model.vocabulary must be there. Its input is tokens (batch, positions),
// its output (batch, positions, vocabulary), and its targets the tokens to foretell; -100 does not count. Collective.
keel_status keel_model_create(keel_context* context, const keel_settings* settings, keel_model** model);
// Numbers where they lie: element (i, j, ...) is memory[i * strides[0] + j * strides[1] + ...]. Valid during the call
// of the host's function that gets it. This structure has the same layout in every version.
typedef struct keel_view {
  void* memory;  // NULL where there are no numbers, or nothing was given
  int dtype;     // keel_dtype
  int rank;
  const int64_t* shape;    // `rank` of them
  const int64_t* strides;  // elements
} keel_view;

// How much a host's function may say of what went wrong, with the 0 at the end.
#define KEEL_MESSAGE 256

// A loss of the host's own: the mean over the samples of one call, and its gradient. `output`, `target` and `gradient`
// have an entry for each of the model's `outputs`. An output is f32 (samples..., width), dense, in the processor's
// memory. A target is the array that the host gave, as it lies; any shape and dtype will do, and nothing else looks at
// it. `weights` is that of the samples (samples...); its memory is NULL where each weighs 1. The function writes *loss,
// and to each gradient, f32 as its output, the derivative of the loss by that output. What it leaves out is not a
// number, and the step is not taken.
//
// It is called by the thread that calls keel, once in each step or part of one, on a rank that has samples. 0: all is
// well. Any other number ends the step on all ranks with KEEL_ERROR_INPUT; keel_last_error() has the number, and what
// was written to `message`, on every rank. All may go on with another step.
typedef int (*keel_loss_function)(int outputs, const keel_view* output, const keel_view* target,
                                  const keel_view* weights, const keel_view* gradient, double* loss,
                                  char message[KEEL_MESSAGE], void* user);
// Takes the function in place of the model's own loss from now on; NULL: the model's own again. Ranks must do the same.
// Gradients of parameters, parts of steps and ranks count as with keel's losses.
keel_status keel_model_loss(keel_model* model, keel_loss_function function, void* user);

// How many parameters the model has, as numbers.
keel_status keel_model_parameters(const keel_model* model, int64_t* count);
keel_status keel_model_destroy(keel_model** model);

// Stands for a learning rate: that of the settings' schedule, which needs `steps`.
#define KEEL_SCHEDULED (-1.0)

// A step of the optimizer. input: (..., inputs); target: (..., outputs), or classes (...). The leading dimensions of
// both are the same; they may differ between ranks, and a rank may have no sample at all. With one output the target
// may be (...). The gradient is the mean over the samples of all ranks.
//
// Results, each of which may be NULL: `loss` of this rank's samples before the step; `grad_norm`, the gradient's 2-norm
// over all ranks before it is clipped; `taken`, 0 where a gradient was not finite and nothing has changed. Collective.
keel_status keel_train_step(keel_model* model, const keel_array* input, const keel_array* target, double lr,
                            double* loss, double* grad_norm, int* taken);
// Adds a gradient to that of the next step, which becomes the mean over both. The settings must announce it: a step has
// batch.global samples, a rank computes batch.micro of them at a time, and that gives the number of parts. Collective.
keel_status keel_train_accumulate(keel_model* model, const keel_array* input, const keel_array* target, double* loss);
// Writes what the model makes of the input to `output`. Collective under zero3, where a rank may have no sample, too,
// and otherwise for each rank by itself.
keel_status keel_infer(keel_model* model, const keel_array* input, const keel_array* output);

// The same with a batch. The gradient is the mean over the samples of all ranks, by their weights; with "mse" and
// several outputs that of the sum over outputs. Collective.
keel_status keel_train_batch(keel_model* model, const keel_batch* batch, double lr, double* loss, double* grad_norm,
                             int* taken);
// Adds a gradient as keel_train_accumulate() does; with `last` != 0 it is the step's last one, keel_get_gradient()
// tells the whole, and keel_train_update() takes the step. Collective.
keel_status keel_train_backward(keel_model* model, const keel_batch* batch, int last, double* loss);
keel_status keel_train_update(keel_model* model, double lr, double* grad_norm, int* taken);
// The mean loss over the samples of all ranks, as weights are now; 0 where none has a sample. No gradient, no step, and
// nothing changes. Collective.
keel_status keel_evaluate(keel_model* model, const keel_batch* batch, double* loss);
// Writes each output to the batch's target of that name. Collective under zero3, otherwise for each rank by itself.
keel_status keel_infer_batch(keel_model* model, const keel_batch* batch);

// --- Parameters -----------------------------------------------------------------------------------------------------

// The name of a parameter, counted from 0; NULL behind the last one. Valid as long as the model.
keel_status keel_parameter_name(const keel_model* model, int64_t index, const char** name);
// Its extents; `shape` has place for 8.
keel_status keel_parameter_shape(const keel_model* model, const char* name, int* rank, int64_t* shape);
// A whole parameter, to and from f32 or f64 of its shape with any strides, whatever a rank has of it. All ranks get the
// same, and the numbers of rank 0 are set on all. fp32 masters where the model computes in 16 bits. Collective.
keel_status keel_get_weights(keel_model* model, const char* name, const keel_array* array);
keel_status keel_set_weights(keel_model* model, const char* name, const keel_array* array);
// Of the step's mean loss, before it is clipped: between keel_train_backward() of the last part and
// keel_train_update(). Collective.
keel_status keel_get_gradient(keel_model* model, const char* name, const keel_array* array);

// --- Files ----------------------------------------------------------------------------------------------------------

// Writes a folder with weights, optimizer state and count of steps, as a whole or not at all; one of that name is
// replaced. All ranks must see it. Collective.
keel_status keel_model_save(const keel_model* model, const char* folder);

// The same while training goes on: keel_model_save_begin() copies the numbers and returns, and a thread writes the
// copy, in the processor's memory, which stays for the next time. The folder has its name once ranks have agreed in
// keel_model_save_poll() that all have written; call it now and then, for example after every step. One save is under
// way at a time. A model that is destroyed, or a program that ends, before that leaves what was there.
typedef enum keel_save_state {
  KEEL_SAVE_NONE = 0,  // none was begun since the last one's result
  KEEL_SAVE_UNDER_WAY = 1,
  KEEL_SAVE_THERE = 2  // it has ended, and the folder is there; told once
} keel_save_state;
// Fails where the first rank cannot make a folder beside that name, on all ranks. Collective.
keel_status keel_model_save_begin(keel_model* model, const char* folder);
// Where the save under way stands. One that has failed on any rank is an error on all of them, KEEL_ERROR_IO, with its
// reason; then none is under way, and what was there before is there. Waits for no disk. Collective.
keel_status keel_model_save_poll(keel_model* model, int* state);
// Waits until the save under way has ended, and tells its failure as keel_model_save_poll() does; where none is under
// way, an error. Collective.
keel_status keel_model_save_finish(keel_model* model);

// Goes on from a folder that keel_model_save() wrote, to the same bits; any number of ranks may have written it. The
// optimizer must be the same. Where the files are damaged or do not fit, nothing is changed. Collective.
keel_status keel_model_load(keel_model* model, const char* folder);
// Loads only weights, from a file in safetensors format with every parameter's name and shape. Collective.
keel_status keel_model_load_weights(keel_model* model, const char* safetensors_file);
// Makes such a file from a folder that keel_model_save() wrote. One rank calls it.
keel_status keel_export_weights(const char* folder, const char* safetensors_file);

#ifdef __cplusplus
}
#endif

#endif
