! The functions of capi/keel.h as Fortran calls them. The module keel is made of them.
module keel_c
  use, intrinsic :: iso_c_binding, only: c_char, c_double, c_funptr, c_int, c_int64_t, c_ptr, c_size_t
  implicit none
  public

  interface
    integer(c_int) function keel_version_c(major, minor, patch) bind(C, name='keel_version')
      import :: c_int
      integer(c_int), intent(out) :: major, minor, patch
    end function

    type(c_ptr) function keel_last_error_c() bind(C, name='keel_last_error')
      import :: c_ptr
    end function

    integer(c_size_t) function strlen_c(text) bind(C, name='strlen')
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
    end function

    integer(c_int) function keel_settings_create_c(settings) bind(C, name='keel_settings_create')
      import :: c_int, c_ptr
      type(c_ptr), intent(inout) :: settings
    end function

    integer(c_int) function keel_settings_load_c(settings, file) bind(C, name='keel_settings_load')
      import :: c_char, c_int, c_ptr
      type(c_ptr), value :: settings
      character(kind=c_char), intent(in) :: file(*)
    end function

    integer(c_int) function keel_settings_set_c(settings, key, val) bind(C, name='keel_settings_set')
      import :: c_char, c_int, c_ptr
      type(c_ptr), value :: settings
      character(kind=c_char), intent(in) :: key(*), val(*)
    end function

    integer(c_int) function keel_settings_log_c(settings, f, user) bind(C, name='keel_settings_log')
      import :: c_funptr, c_int, c_ptr
      type(c_ptr), value :: settings
      type(c_funptr), value :: f
      type(c_ptr), value :: user
    end function

    integer(c_int) function keel_settings_destroy_c(settings) bind(C, name='keel_settings_destroy')
      import :: c_int, c_ptr
      type(c_ptr), intent(inout) :: settings
    end function

    integer(c_int) function keel_context_create_c(settings, context) bind(C, name='keel_context_create')
      import :: c_int, c_ptr
      type(c_ptr), value :: settings
      type(c_ptr), intent(inout) :: context
    end function

    integer(c_int) function keel_context_create_mpi_c(communicator, settings, context) &
        bind(C, name='keel_context_create_mpi')
      import :: c_int, c_int64_t, c_ptr
      integer(c_int64_t), value :: communicator
      type(c_ptr), value :: settings
      type(c_ptr), intent(inout) :: context
    end function

    integer(c_int) function keel_context_create_tcp_c(rank, ranks, address, token, timeout, settings, context) &
        bind(C, name='keel_context_create_tcp')
      import :: c_char, c_double, c_int, c_ptr
      integer(c_int), value :: rank, ranks
      character(kind=c_char), intent(in) :: address(*), token(*)
      real(c_double), value :: timeout
      type(c_ptr), value :: settings
      type(c_ptr), intent(inout) :: context
    end function

    integer(c_int) function keel_team_create_c(ranks, timeout, team) bind(C, name='keel_team_create')
      import :: c_double, c_int, c_ptr
      integer(c_int), value :: ranks
      real(c_double), value :: timeout
      type(c_ptr), intent(inout) :: team
    end function

    integer(c_int) function keel_context_create_thread_c(team, rank, settings, context) &
        bind(C, name='keel_context_create_thread')
      import :: c_int, c_ptr
      type(c_ptr), value :: team, settings
      integer(c_int), value :: rank
      type(c_ptr), intent(inout) :: context
    end function

    integer(c_int) function keel_team_destroy_c(team) bind(C, name='keel_team_destroy')
      import :: c_int, c_ptr
      type(c_ptr), intent(inout) :: team
    end function

    integer(c_int) function keel_context_ranks_c(context, rank, ranks) bind(C, name='keel_context_ranks')
      import :: c_int, c_ptr
      type(c_ptr), value :: context
      integer(c_int), intent(out) :: rank, ranks
    end function

    integer(c_int) function keel_context_fail_c(context, reason) bind(C, name='keel_context_fail')
      import :: c_char, c_int, c_ptr
      type(c_ptr), value :: context
      character(kind=c_char), intent(in) :: reason(*)
    end function

    integer(c_int) function keel_context_destroy_c(context) bind(C, name='keel_context_destroy')
      import :: c_int, c_ptr
      type(c_ptr), intent(inout) :: context
    end function

    integer(c_int) function keel_array_create_c(context, memory, dtype, place, rank, extents, strides, array) &
        bind(C, name='keel_array_create')
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: context, memory
      integer(c_int), value :: dtype, place, rank
      integer(c_int64_t), intent(in) :: extents(*), strides(*)
      type(c_ptr), intent(inout) :: array
    end function

    integer(c_int) function keel_array_destroy_c(array) bind(C, name='keel_array_destroy')
      import :: c_int, c_ptr
      type(c_ptr), intent(inout) :: array
    end function

    integer(c_int) function keel_batch_create_c(context, batch) bind(C, name='keel_batch_create')
      import :: c_int, c_ptr
      type(c_ptr), value :: context
      type(c_ptr), intent(inout) :: batch
    end function

    integer(c_int) function keel_batch_input_c(batch, name, array) bind(C, name='keel_batch_input')
      import :: c_int, c_ptr
      type(c_ptr), value :: batch, name, array
    end function

    integer(c_int) function keel_batch_target_c(batch, name, array) bind(C, name='keel_batch_target')
      import :: c_int, c_ptr
      type(c_ptr), value :: batch, name, array
    end function

    integer(c_int) function keel_batch_weights_c(batch, array) bind(C, name='keel_batch_weights')
      import :: c_int, c_ptr
      type(c_ptr), value :: batch, array
    end function

    integer(c_int) function keel_batch_destroy_c(batch) bind(C, name='keel_batch_destroy')
      import :: c_int, c_ptr
      type(c_ptr), intent(inout) :: batch
    end function

    integer(c_int) function keel_model_create_mlp_c(context, settings, widths, n, activation, loss, model) &
        bind(C, name='keel_model_create_mlp')
      import :: c_char, c_int, c_int64_t, c_ptr
      type(c_ptr), value :: context, settings
      integer(c_int64_t), intent(in) :: widths(*)
      integer(c_int), value :: n
      character(kind=c_char), intent(in) :: activation(*), loss(*)
      type(c_ptr), intent(inout) :: model
    end function

    integer(c_int) function keel_model_create_text_c(context, settings, text, inputs, loss, model) &
        bind(C, name='keel_model_create_text')
      import :: c_char, c_int, c_int64_t, c_ptr
      type(c_ptr), value :: context, settings
      character(kind=c_char), intent(in) :: text(*), loss(*)
      integer(c_int64_t), value :: inputs
      type(c_ptr), intent(inout) :: model
    end function

    integer(c_int) function keel_model_create_c(context, settings, model) bind(C, name='keel_model_create')
      import :: c_int, c_ptr
      type(c_ptr), value :: context, settings
      type(c_ptr), intent(inout) :: model
    end function

    integer(c_int) function keel_model_loss_c(model, f, user) bind(C, name='keel_model_loss')
      import :: c_funptr, c_int, c_ptr
      type(c_ptr), value :: model
      type(c_funptr), value :: f
      type(c_ptr), value :: user
    end function

    integer(c_int) function keel_model_parameters_c(model, n) bind(C, name='keel_model_parameters')
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: model
      integer(c_int64_t), intent(out) :: n
    end function

    integer(c_int) function keel_model_destroy_c(model) bind(C, name='keel_model_destroy')
      import :: c_int, c_ptr
      type(c_ptr), intent(inout) :: model
    end function

    integer(c_int) function keel_train_step_c(model, input, target_, lr, loss, grad_norm, taken) &
        bind(C, name='keel_train_step')
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: model, input, target_
      real(c_double), value :: lr
      real(c_double), intent(out) :: loss, grad_norm
      integer(c_int), intent(out) :: taken
    end function

    integer(c_int) function keel_train_accumulate_c(model, input, target_, loss) bind(C, name='keel_train_accumulate')
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: model, input, target_
      real(c_double), intent(out) :: loss
    end function

    integer(c_int) function keel_infer_c(model, input, output) bind(C, name='keel_infer')
      import :: c_int, c_ptr
      type(c_ptr), value :: model, input, output
    end function

    integer(c_int) function keel_train_batch_c(model, batch, lr, loss, grad_norm, taken) &
        bind(C, name='keel_train_batch')
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: model, batch
      real(c_double), value :: lr
      real(c_double), intent(out) :: loss, grad_norm
      integer(c_int), intent(out) :: taken
    end function

    integer(c_int) function keel_train_backward_c(model, batch, last, loss) bind(C, name='keel_train_backward')
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: model, batch
      integer(c_int), value :: last
      real(c_double), intent(out) :: loss
    end function

    integer(c_int) function keel_train_update_c(model, lr, grad_norm, taken) bind(C, name='keel_train_update')
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: model
      real(c_double), value :: lr
      real(c_double), intent(out) :: grad_norm
      integer(c_int), intent(out) :: taken
    end function

    integer(c_int) function keel_evaluate_c(model, batch, loss) bind(C, name='keel_evaluate')
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: model, batch
      real(c_double), intent(out) :: loss
    end function

    integer(c_int) function keel_infer_batch_c(model, batch) bind(C, name='keel_infer_batch')
      import :: c_int, c_ptr
      type(c_ptr), value :: model, batch
    end function

    integer(c_int) function keel_parameter_name_c(model, i, name) bind(C, name='keel_parameter_name')
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: model
      integer(c_int64_t), value :: i
      type(c_ptr), intent(inout) :: name
    end function

    integer(c_int) function keel_parameter_shape_c(model, name, rank, extents) bind(C, name='keel_parameter_shape')
      import :: c_char, c_int, c_int64_t, c_ptr
      type(c_ptr), value :: model
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), intent(out) :: rank
      integer(c_int64_t), intent(out) :: extents(*)
    end function

    integer(c_int) function keel_get_weights_c(model, name, array) bind(C, name='keel_get_weights')
      import :: c_char, c_int, c_ptr
      type(c_ptr), value :: model, array
      character(kind=c_char), intent(in) :: name(*)
    end function

    integer(c_int) function keel_set_weights_c(model, name, array) bind(C, name='keel_set_weights')
      import :: c_char, c_int, c_ptr
      type(c_ptr), value :: model, array
      character(kind=c_char), intent(in) :: name(*)
    end function

    integer(c_int) function keel_get_gradient_c(model, name, array) bind(C, name='keel_get_gradient')
      import :: c_char, c_int, c_ptr
      type(c_ptr), value :: model, array
      character(kind=c_char), intent(in) :: name(*)
    end function

    integer(c_int) function keel_model_save_c(model, folder) bind(C, name='keel_model_save')
      import :: c_char, c_int, c_ptr
      type(c_ptr), value :: model
      character(kind=c_char), intent(in) :: folder(*)
    end function

    integer(c_int) function keel_model_save_begin_c(model, folder) bind(C, name='keel_model_save_begin')
      import :: c_char, c_int, c_ptr
      type(c_ptr), value :: model
      character(kind=c_char), intent(in) :: folder(*)
    end function

    integer(c_int) function keel_model_save_poll_c(model, state) bind(C, name='keel_model_save_poll')
      import :: c_int, c_ptr
      type(c_ptr), value :: model
      integer(c_int), intent(out) :: state
    end function

    integer(c_int) function keel_model_save_finish_c(model) bind(C, name='keel_model_save_finish')
      import :: c_int, c_ptr
      type(c_ptr), value :: model
    end function

    integer(c_int) function keel_model_load_c(model, folder) bind(C, name='keel_model_load')
      import :: c_char, c_int, c_ptr
      type(c_ptr), value :: model
      character(kind=c_char), intent(in) :: folder(*)
    end function

    integer(c_int) function keel_model_load_weights_c(model, file) bind(C, name='keel_model_load_weights')
      import :: c_char, c_int, c_ptr
      type(c_ptr), value :: model
      character(kind=c_char), intent(in) :: file(*)
    end function

    integer(c_int) function keel_export_weights_c(folder, file) bind(C, name='keel_export_weights')
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: folder(*), file(*)
    end function
  end interface
end module keel_c
