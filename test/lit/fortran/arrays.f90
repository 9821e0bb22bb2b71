! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
! Arrays, sections and loops in regions of flang: divided among threads, with and without
! chunks, nested, reduced, with loop variables of four and eight bytes; on two devices.
!
! RUN: %flang %s -o %t
! RUN: %run2 %t | FileCheck %s
! RUN: %flang %inlined %s -o %t.inlined
! RUN: %run2 %t.inlined | FileCheck %s
! REQUIRES: flang
!
! CHECK: result: right

program arrays
  use omp_lib
  use iso_c_binding
  implicit none
  interface
    integer(c_int) function getpid() bind(c)
      import c_int
    end function
  end interface
  integer :: d, before

  before = -1
  do d = 0, omp_get_num_devices() - 1
    call places(d, before)
    call loops(d)
    call sections(d)
    call two_at_once(d)
  end do
  print '(a)', 'result: right'

contains

  subroutine check(right, what)
    logical, intent(in) :: right
    character(*), intent(in) :: what
    if (.not. right) then
      print '(2a)', 'wrong: ', what
      stop 1
    end if
  end subroutine

  ! A region runs on the device, in a process of its own.
  subroutine places(d, before)
    integer, intent(in) :: d
    integer, intent(inout) :: before
    integer :: pid
    logical :: initial
    !$omp target map(from: pid, initial) device(d)
    pid = getpid()
    initial = omp_is_initial_device()
    !$omp end target
    call check(.not. initial, 'the region is on a device')
#ifndef STOCK
    call check(pid /= getpid() .and. pid /= before, 'devices are processes')
#endif
    before = pid
  end subroutine

  subroutine loops(d)
    integer, intent(in) :: d
    integer, parameter :: n = 1000
    integer :: i, j, threads, most
    integer(8) :: k, large
    real(8) :: x(n), y(n), total
    integer :: table(7, 11)

    x = 1
    y = [(real(i, 8), i=1, n)]
    total = 0
    !$omp target teams distribute parallel do map(to: x) map(tofrom: y, total) reduction(+: total) device(d)
    do i = 1, n
      y(i) = y(i) + 2*x(i)
      total = total + y(i)
    end do
    call check(total == n*(n + 1)/2 + 2*n .and. y(n) == n + 2, 'teams distribute parallel do')

    ! All of a loop is done once, however many threads share it.
    y = 0
    threads = 0
    !$omp target map(tofrom: y, threads) device(d)
    !$omp parallel num_threads(3)
    !$omp do schedule(static, 7)
    do i = 1, n
      y(i) = y(i) + i
    end do
    !$omp do
    do i = n, 1, -3
      y(i) = -y(i)
    end do
    !$omp atomic
    threads = threads + 1
    !$omp end parallel
    !$omp end target
    call check(all([(y(i) == merge(-i, i, mod(n - i, 3) == 0), i=1, n)]), 'do in parallel')
    call check(threads == 3, 'three threads')

    threads = 0
    !$omp target parallel if(parallel: .false.) map(tofrom: threads) device(d)
    threads = threads + 1
    !$omp end target parallel
    call check(threads == 1, 'parallel if(.false.)')

    table = 0
    !$omp target teams distribute parallel do collapse(2) map(tofrom: table) device(d)
    do i = 1, 7
      do j = 1, 11
        table(i, j) = table(i, j) + 100*i + j
      end do
    end do
    call check(all([((table(i, j) == 100*i + j, i=1, 7), j=1, 11)]), 'collapse')

    large = 3000000000_8
    most = 0
    total = 0
    !$omp target teams distribute parallel do map(tofrom: total, most) reduction(+: total) reduction(max: most) device(d)
    do k = large, large + n - 1
      total = total + (k - large)
      most = max(most, int(k - large))
    end do
    call check(total == n*(n - 1)/2 .and. most == n - 1, 'a loop of eight bytes')

    total = 0
    !$omp target teams distribute map(tofrom: total, table) device(d)
    do i = 1, 7
      !$omp parallel do
      do j = 1, 11
        table(i, j) = -table(i, j)
      end do
    end do
    call check(all(table < 0), 'parallel do in distribute')

    ! No iterations.
    !$omp target teams distribute parallel do map(tofrom: table) device(d)
    do i = 1, 0
      table(i, 1) = 0
    end do
    call check(all(table < 0), 'an empty loop')
  end subroutine

  ! What is not in a section stays as it was; the array's functions work.
  subroutine sections(d)
    integer, intent(in) :: d
    integer :: cube(4, 5, 6), sum_there
    real(8) :: m(3, 3), v(3)
    cube = 1
    !$omp target map(tofrom: cube(:, :, 2:3)) map(from: sum_there) device(d)
    cube(2:3, 4, 2:3) = 7
    sum_there = sum(cube(:, :, 2:3))
    !$omp end target
    call check(sum_there == 64 .and. sum(cube) == 144, 'sections')

    m = reshape([0, 1, 0, 0, 0, 1, 1, 0, 0], [3, 3])
    v = [1, 2, 3]
    !$omp target data map(to: m) map(tofrom: v) device(d)
    !$omp target device(d)
    v = matmul(m, v)
    !$omp end target
    v = 0
    !$omp target update from(v) device(d)
    call check(all(v == [3, 1, 2]), 'update from')
    v = [5, 6, 7]
    !$omp target update to(v(2:3)) device(d)
    !$omp target device(d)
    v = v + maxval(m)
    !$omp end target
    !$omp end target data
    call check(all(v == [4, 7, 8]), 'update to a section')
  end subroutine

  ! Regions that need not wait, in order.
  subroutine two_at_once(d)
    integer, intent(in) :: d
    integer :: a, b
    a = 1
    b = 2
    !$omp target nowait map(tofrom: a) depend(out: a) device(d)
    a = a + 10
    !$omp end target
    !$omp target nowait map(tofrom: b) depend(out: b) device(d)
    b = b + 10
    !$omp end target
    !$omp target nowait map(tofrom: a, b) depend(inout: a, b) device(d)
    a = a*b
    !$omp end target
    !$omp taskwait
    call check(a == 132, 'nowait and depend')
  end subroutine
end program
