! A code in Fortran with a loss of its own. It calibrates an instrument: a model learns a curve from measurements, of
! which every seventh is far off. The mean of squares is drawn away by those; log(cosh()) of the error hardly is.
module losses
  use keel
  implicit none
  private
  public :: log_cosh

contains

  ! The mean of log(cosh(error)) over the samples, and its derivative by each output, tanh(error) / samples.
  subroutine log_cosh(output, wanted, weights, gradient, loss, failure)
    type(keel_view), intent(in) :: output(:), wanted(:), weights, gradient(:)
    real(8), intent(out) :: loss
    character(*), intent(inout) :: failure
    real(4), pointer :: answer(:, :), slope(:, :)  ! (outputs, samples)
    real(8), pointer :: goal(:)                    ! the host's own array, as it lies
    real(8), pointer :: of_samples(:)
    real(8), allocatable :: error(:)

    call keel_look(output(1), answer)
    call keel_look(gradient(1), slope)
    call keel_look(wanted(1), goal)
    call keel_look(weights, of_samples)
    loss = 0
    if (.not. associated(goal) .or. associated(of_samples)) then
      failure = 'targets are real(8) (samples), and samples weigh the same'  ! ends the step on all ranks, with this text
      return
    end if
    error = answer(1, :) - goal
    loss = sum(log(cosh(error))) / size(error)
    slope(1, :) = real(tanh(error) / size(error), 4)
  end subroutine

end module losses

program embed_loss
  use keel
  use losses
  implicit none
  integer, parameter :: samples = 140, steps = 600
  type(keel_settings) :: settings
  type(keel_context) :: context
  type(keel_array) :: inputs, targets, answers
  real(8), target :: x(1, samples), measured(3, samples), answer(samples)
  real(8) :: errors(2)
  integer :: i

  measured = 0
  do i = 1, samples
    x(1, i) = -2 + 4 * (i - 1) / (samples - 1d0)
    measured(2, i) = merge(5d0, sin(2 * x(1, i)), mod(i, 7) == 4)
  end do
  call settings%create()
  call settings%set('threads', '1')
  call context%create(settings)
  call inputs%bind(context, x)
  call targets%bind(context, measured(2, :))  ! a row of a larger array, where it lies
  call answers%bind(context, answer)
  errors = [error_of(.false.), error_of(.true.)]
  print '(a, f6.3, a, f6.3)', 'error by squares ', errors(1), ', by log(cosh()) ', errors(2)
  call inputs%destroy()
  call targets%destroy()
  call answers%destroy()
  call context%destroy()
  call settings%destroy()
  if (errors(2) >= 0.3d0 .or. errors(1) < 2 * errors(2)) error stop 1

contains

  ! At the good measurements, after training.
  real(8) function error_of(has_own_loss)
    logical, intent(in) :: has_own_loss
    type(keel_model) :: model
    integer :: step

    call model%create_text(context, 'dense 32 tanh; dense 32 tanh; dense 1', 'mse', inputs=1)
    if (has_own_loss) call model%set_loss(log_cosh)
    do step = 1, steps
      call model%train_step(inputs, targets, 1d-2 * (1 - (step - 1) / real(steps, 8)))
    end do
    call model%infer(inputs, answers)
    error_of = sqrt(sum((answer - sin(2 * x(1, :)))**2, mask=[(mod(i, 7) /= 4, i = 1, samples)]) / (samples * 6 / 7d0))
    call model%destroy()
  end function

end program embed_loss
