! The module keel, called as codes in Fortran do. Every claim that does not hold is printed, and the program fails.
! usage: test_fortran FOLDER, which is there and empty; test_fortran stop: an error without `stat`
program fortran_test
  use, intrinsic :: iso_c_binding, only: c_char, c_float, c_int, c_int32_t, c_int64_t, c_null_char
  use keel
  implicit none

  interface
    integer(c_int) function twin_trains(x, y, folder) bind(C)
      import :: c_char, c_float, c_int
      real(c_float), intent(in) :: x(*), y(*)
      character(kind=c_char), intent(in) :: folder(*)
    end function
    integer(c_int) function twin_has_same(one, other) bind(C)
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: one(*), other(*)
    end function
  end interface

  integer, parameter :: features = 4, samples = 8, outputs = 2
  integer :: failures = 0, length
  character(:), allocatable :: folder
  logical :: fails = .false.
  type(keel_settings) :: settings
  type(keel_context) :: context
  real(4), target :: x(features, samples), y(outputs, samples)

  call get_command_argument(1, length=length)
  allocate (character(length) :: folder)
  call get_command_argument(1, folder)
  call fill(x, 0.37)
  call fill(y, 0.73)
  call settings%create()
  call settings%set('threads', '1')
  call context%create(settings)
  if (folder == 'stop') call settings%set('clop', '1')

  call has_the_bits_of_row_major_c()
  call answers_into_sections()
  call tells_what_is_wrong()
  call reads_classes()
  call has_a_loss_of_its_own()
  call has_several_fields()
  call has_ranks_without_mpi()

  call context%destroy()
  call settings%destroy()
  if (failures > 0) error stop 1
  print '(a)', 'the module keel: all holds'

contains

  subroutine expect(holds, claim)
    logical, intent(in) :: holds
    character(*), intent(in) :: claim
    if (holds) return
    failures = failures + 1
    print '(4a)', 'does not hold: ', claim, '; last error: ', keel_last_error()
  end subroutine

  subroutine fill(numbers, pace)
    real(4), intent(out) :: numbers(:, :)
    real, intent(in) :: pace
    integer :: i, j
    do j = 1, size(numbers, 2)
      do i = 1, size(numbers, 1)
        numbers(i, j) = sin(pace * real((j - 1) * size(numbers, 1) + i))
      end do
    end do
  end subroutine

  ! Three steps from `inputs` and `wanted`, saved to folder/name.
  subroutine train(inputs, wanted, name)
    type(keel_array), intent(inout) :: inputs, wanted
    character(*), intent(in) :: name
    type(keel_model) :: model
    real(8) :: loss, norm
    logical :: taken
    integer :: step

    call model%create_mlp(context, [features, 16, outputs], 'tanh', 'mse')
    do step = 1, 3
      call model%train_step(inputs, wanted, 1d-2, loss=loss, grad_norm=norm, taken=taken)
      call expect(taken .and. loss > 0 .and. norm > 0, name // ': a step has a loss and a gradient')
    end do
    call model%save(folder // '/' // name)
    call save_beside(model)
    call model%destroy()
    call inputs%destroy()
    call wanted%destroy()
  end subroutine

  subroutine save_beside(model)
    type(keel_model), intent(inout) :: model
    integer :: state, status

    call model%save_poll(state)
    call expect(state == KEEL_SAVE_NONE, 'no save is under way')
    call model%save_finish(stat=status)
    call expect(status == KEEL_ERROR_INPUT, 'and none can be waited for')
    call model%save_begin(folder // '/beside')
    state = KEEL_SAVE_UNDER_WAY
    do while (state == KEEL_SAVE_UNDER_WAY)
      call model%save_poll(state)
    end do
    call expect(state == KEEL_SAVE_THERE, 'a save ends')
    call model%save_begin(folder // '/beside')
    call model%save_finish()
    call model%load(folder // '/beside')
  end subroutine

  subroutine has_the_bits_of_row_major_c()
    type(keel_array) :: inputs, wanted
    real(8), target :: wide_x(features, samples), wide_y(outputs, samples)
    real(4), target :: field(features + 2, 2 * samples, 2)
    real(4), target :: cubes(features, 2, samples / 2), more(outputs, 2, samples / 2)

    call expect(twin_trains(x, y, folder // '/c' // c_null_char) == 1, 'C trains')
    call inputs%bind(context, x)
    call wanted%bind(context, y)
    call train(inputs, wanted, 'dense')

    wide_x = x
    wide_y = y
    call inputs%bind(context, wide_x)
    call wanted%bind(context, wide_y)
    call train(inputs, wanted, 'wide')

    field = 1e9
    field(2:features + 1, 1::2, 2) = x
    call inputs%bind(context, field(2:features + 1, 1::2, 2))
    call wanted%bind(context, y)
    call train(inputs, wanted, 'section')

    cubes = reshape(x, shape(cubes))
    more = reshape(y, shape(more))
    call inputs%bind(context, cubes)
    call wanted%bind(context, more)
    call train(inputs, wanted, 'cubes')

    call expect(same('dense'), 'a(features, samples) is what (samples, features) is in C')
    call expect(same('wide'), 'real(8) is converted')
    call expect(same('section'), 'a section with gaps is read where it lies')
    call expect(same('cubes'), 'samples may have two dimensions')
  end subroutine

  logical function same(name)
    character(*), intent(in) :: name
    same = twin_has_same(folder // '/c' // c_null_char, folder // '/' // name // c_null_char) == 1
  end function

  subroutine answers_into_sections()
    type(keel_model) :: model
    type(keel_array) :: inputs, answers
    real(8), target :: dense(outputs, samples), field(outputs, 3 * samples)

    call model%create_mlp(context, [features, 16, outputs], 'tanh', 'mse')
    call model%load(folder // '/c')
    call inputs%bind(context, x)
    call answers%bind(context, dense)
    call model%infer(inputs, answers)
    field = -7
    call answers%bind(context, field(:, 2::3))
    call model%infer(inputs, answers)
    call expect(all(field(:, 2::3) == dense), 'a section is written where it lies')
    call expect(all(field(:, 1::3) == -7 .and. field(:, 3::3) == -7), 'and nothing else is')
    call expect(maxval(abs(dense)) > 0, 'the model answers')
    call model%destroy()
    call inputs%destroy()
    call answers%destroy()
  end subroutine

  subroutine tells_what_is_wrong()
    type :: cell
      real(8) :: number
      real(4) :: other
    end type
    type(cell), target :: cells(4)
    type(keel_model) :: model
    type(keel_array) :: inputs, wanted
    real(4), target :: nothing(features, 0), few(3, samples)
    integer :: status, major, minor, patch

    call keel_version(major, minor, patch)
    call expect(major * 10000 + minor * 100 + patch > 0, 'there is a version')
    call model%create_mlp(context, [features, 2], 'rely', 'mse', stat=status)
    call expect(status == KEEL_ERROR_INPUT .and. index(keel_last_error(), 'rely') > 0, 'an activation is misspelled')
    call model%infer(inputs, inputs, stat=status)
    call expect(status == KEEL_ERROR_HANDLE, 'there is no model')
    call model%create_mlp(context, [features, 2], 'relu', 'mse', stat=status)
    call expect(status == KEEL_OK, 'it can be made afterwards')
    call inputs%bind(context, few)
    call wanted%bind(context, y)
    call model%train_step(inputs, wanted, 1d-3, stat=status)
    call expect(status == KEEL_ERROR_INPUT, 'three features are not four')
    call inputs%bind(context, x(:, samples:1:-1), stat=status)
    call expect(status == KEEL_ERROR_INPUT .and. index(keel_last_error(), 'negative') > 0, 'backwards does not go')
    cells%number = 1
    cells%other = 2
    call inputs%bind(context, cells%other, stat=status)
    call expect(status == KEEL_OK, 'a component whose gaps are whole elements is a section')
    call inputs%bind(context, nothing, stat=status)
    call expect(status == KEEL_OK, 'there may be no samples')
    call model%load('nowhere', stat=status)
    call expect(status == KEEL_ERROR_IO, 'there is no such folder')
    call model%destroy()
    call model%destroy(stat=status)
    call expect(status == KEEL_OK, 'what is destroyed may be so again')
    call inputs%destroy()
    call wanted%destroy()
  end subroutine

  subroutine reads_classes()
    type(keel_model) :: model
    type(keel_array) :: inputs, wanted
    integer(c_int32_t), target :: classes(samples)
    real(8) :: loss
    integer :: step

    classes = merge(1, 0, x(2, :) > 0)
    call model%create_mlp(context, [features, 8, 2], 'gelu', 'cross_entropy')
    call inputs%bind(context, x)
    call wanted%bind(context, classes)
    do step = 1, 100
      call model%train_step(inputs, wanted, 5d-2, loss=loss)
    end do
    call expect(loss < 0.1d0, 'classes are learned')
    call model%destroy()
    call inputs%destroy()
    call wanted%destroy()
  end subroutine

  ! The mean of squared differences, of outputs (width, samples) and targets real(4) or real(8), of any strides.
  subroutine own_loss(output, wanted, weights, gradient, loss, failure)
    type(keel_view), intent(in) :: output(:), wanted(:), weights, gradient(:)
    real(8), intent(out) :: loss
    character(*), intent(inout) :: failure
    real(4), pointer :: answers(:, :), slopes(:, :), goals(:, :)
    real(8), pointer :: wide(:, :), of_samples(:)
    real(4), allocatable :: difference(:, :)

    loss = 0
    call keel_look(output(1), answers)
    call keel_look(gradient(1), slopes)
    call keel_look(wanted(1), goals)
    call keel_look(wanted(1), wide)
    call keel_look(weights, of_samples)
    call expect(associated(goals) .neqv. associated(wide), 'targets are of one kind')
    call expect(.not. associated(of_samples), 'samples have no weights')
    if (associated(goals)) difference = answers - goals
    if (associated(wide)) difference = answers - real(wide, 4)
    if (fails) failure = 'no convergence in cell 17'
    loss = sum(real(difference, 8)**2) / size(difference)
    slopes = 2 * difference / size(difference)
  end subroutine

  subroutine has_a_loss_of_its_own()
    type(keel_model) :: own, theirs
    type(keel_array) :: inputs, wanted, gaps
    real(8), target :: field(2 * outputs + 1, samples), answers(outputs, samples), same_answers(outputs, samples)
    real(8) :: loss, their_loss
    integer :: step, status

    field = 1d9
    field(2::2, :) = y
    call inputs%bind(context, x)
    call wanted%bind(context, y)
    call gaps%bind(context, field(2::2, :))
    call own%create_mlp(context, [features, 16, outputs], 'tanh', 'mse')
    call theirs%create_mlp(context, [features, 16, outputs], 'tanh', 'mse')
    call own%set_loss(own_loss)
    do step = 1, 3
      if (step == 2) call own%train_step(inputs, gaps, 1d-2, loss=loss)
      if (step /= 2) call own%train_step(inputs, wanted, 1d-2, loss=loss)
      call theirs%train_step(inputs, wanted, 1d-2, loss=their_loss)
      call expect(abs(loss - their_loss) <= 1e-7 * their_loss, 'a loss of one''s own is that of keel')
    end do
    fails = .true.
    call own%train_step(inputs, wanted, 1d-2, stat=status)
    call expect(status == KEEL_ERROR_INPUT .and. index(keel_last_error(), 'returned 1: no convergence in cell 17') > 0, &
      'a loss that fails says why')
    fails = .false.
    call wanted%bind(context, answers)
    call own%infer(inputs, wanted)
    call wanted%bind(context, same_answers)
    call theirs%infer(inputs, wanted)
    call expect(all(answers == same_answers), 'and so are its gradients, to the bit')
    call own%set_loss()
    call own%destroy()
    call theirs%destroy()
    call inputs%destroy()
    call wanted%destroy()
    call gaps%destroy()
  end subroutine

  ! A model of two inputs and two outputs, with samples that weigh differently, whose weights come and go.
  subroutine has_several_fields()
    type(keel_model) :: model, twin
    type(keel_batch) :: batch
    type(keel_array) :: heat, wind, flux, rain, weights, array
    real(8), target :: of_samples(samples), table(0:8, 5), same_table(4, 5)
    integer(c_int64_t), allocatable :: extents(:)
    character(:), allocatable :: name
    character(*), parameter :: text = 'input heat 1; input wind 3; dense 5 tanh; output flux 1; output rain 1'
    real(8) :: loss, before, norm
    integer :: i, status

    of_samples = [(real(mod(i, 3), 8), i = 1, samples)]
    call model%create_text(context, text, 'mse')
    call twin%create_text(context, text, 'mse')
    call heat%bind(context, x(1:1, :))
    call wind%bind(context, x(2:, :))
    call flux%bind(context, y(1, :))
    call rain%bind(context, y(2, :))
    call weights%bind(context, of_samples)
    call batch%create(context)
    call batch%input(heat)
    call batch%input(wind)
    call batch%target(rain, 'rain')
    call batch%target(flux, 'flux')
    call batch%weights(weights)
    before = -1
    call model%evaluate(batch, before)
    call model%train_step(batch, 1d-2, loss=loss)
    call expect(loss > 0 .and. abs(loss - before) <= 1d-6 * loss, 'evaluation gives the loss')
    call model%parameter_name(1, name)
    call expect(name == 'layers.0.weight', 'the first parameter has a name')
    call model%parameter_shape(name, extents)
    call expect(all(extents == [4, 5]), 'and extents in the order of Fortran')
    table = -7
    call array%bind(context, table(1::2, :))
    call model%get_weights(name, array)
    call expect(all(table(0::2, :) == -7) .and. maxval(abs(table(1::2, :))) < 5, 'it is read into a section')
    call twin%set_weights(name, array)
    call array%bind(context, same_table)
    call twin%get_weights(name, array)
    call expect(all(same_table == table(1::2, :)), 'and written from one')
    call model%get_gradient(name, array, stat=status)
    call expect(status == KEEL_ERROR_INPUT, 'there is no gradient yet')
    call model%backward(batch, last=.true.)
    call model%get_gradient(name, array)
    call expect(maxval(abs(same_table)) > 0, 'a gradient is read')
    call model%update(1d-2, grad_norm=norm)
    call expect(norm > 0, 'before the step is taken')
    call model%parameter_name(100, name)
    call expect(.not. allocated(name), 'parameters end')
    call model%create_text(context, 'dense 3; dens 2', 'mse', inputs=4, stat=status)
    call expect(status == KEEL_ERROR_INPUT .and. index(keel_last_error(), 'character 10') > 0, 'a text is misspelled')
    call batch%destroy()
    call model%destroy()
    call twin%destroy()
    call heat%destroy()
    call wind%destroy()
    call flux%destroy()
    call rain%destroy()
    call weights%destroy()
    call array%destroy()
  end subroutine

  ! Of one rank each: threads and processes of Fortran are the host's.
  subroutine has_ranks_without_mpi()
    type(keel_team) :: team
    type(keel_context) :: of_thread, of_tcp, second
    integer :: rank, ranks, status

    call team%create(1, 5d0)
    call of_thread%create_thread(team, 0, settings)
    call of_thread%ranks(rank, ranks)
    call expect(rank == 0 .and. ranks == 1, 'a thread is a rank')
    call second%create_thread(team, 0, settings, stat=status)
    call expect(status == KEEL_ERROR_INPUT, 'once')
    call of_tcp%create_tcp(0, 1, 'localhost:0', 'token', 5d0, settings)
    call of_tcp%ranks(rank, ranks)
    call expect(rank == 0 .and. ranks == 1, 'a process is a rank')
    call second%create_tcp(1, 1, 'localhost:0', '', 5d0, settings, stat=status)
    call expect(status == KEEL_ERROR_INPUT .and. index(keel_last_error(), 'rank is 1') > 0, 'within their number')
    call of_thread%destroy()
    call of_tcp%destroy()
    call team%destroy()
  end subroutine

end program fortran_test
