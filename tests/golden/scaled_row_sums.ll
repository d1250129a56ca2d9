target triple = "x86_64-unknown-linux-gnu"

define internal void @scaled_row_sums.task0.body(ptr noalias readonly %b0, ptr noalias readonly %b1, ptr noalias %b2, ptr noalias readonly %b3, i64 %begin, i64 %end) noinline nounwind "no-builtins" "prefer-vector-width"="512" {
entry:
  %local8 = alloca [8 x float], align 64
  br label %start
start:
  %t5 = icmp slt i64 %begin, %end
  br i1 %t5, label %guard4, label %end3
guard4:
  %t25 = getelementptr float, ptr %local8, i64 4
  %t29 = getelementptr float, ptr %local8, i64 2
  %t33 = getelementptr float, ptr %local8, i64 1
  br label %loop1
loop1:
  %i6 = phi i64 [ %begin, %guard4 ], [ %i.next7, %latch2 ]
  store <8 x float> splat (float 0x0000000000000000), ptr %local8, align 64
  %t14 = mul nsw i64 %i6, 24
  br label %loop9
loop9:
  %i12 = phi i64 [ 0, %loop1 ], [ %i.next13, %latch10 ]
  %t15 = mul nsw i64 %i12, 8
  %t16 = add nsw i64 %t14, %t15
  %t17 = getelementptr float, ptr %b0, i64 %t16
  %t18 = load <8 x float>, ptr %t17, align 4
  %t19 = getelementptr float, ptr %b1, i64 %t15
  %t20 = load <8 x float>, ptr %t19, align 4
  %t21 = load <8 x float>, ptr %local8, align 64
  %t22 = call <8 x float> @llvm.fma.v8f32(<8 x float> %t18, <8 x float> %t20, <8 x float> %t21)
  store <8 x float> %t22, ptr %local8, align 64
  br label %latch10
latch10:
  %i.next13 = add nsw i64 %i12, 1
  %t23 = icmp slt i64 %i.next13, 3
  br i1 %t23, label %loop9, label %end11
end11:
  %t24 = load <4 x float>, ptr %local8, align 64
  %t26 = load <4 x float>, ptr %t25, align 16
  %t27 = fadd <4 x float> %t24, %t26
  store <4 x float> %t27, ptr %local8, align 64
  %t28 = load <2 x float>, ptr %local8, align 64
  %t30 = load <2 x float>, ptr %t29, align 8
  %t31 = fadd <2 x float> %t28, %t30
  store <2 x float> %t31, ptr %local8, align 64
  %t32 = load float, ptr %local8, align 64
  %t34 = load float, ptr %t33, align 4
  %t35 = fadd float %t32, %t34
  store float %t35, ptr %local8, align 64
  %t36 = load float, ptr %local8, align 64
  %t37 = getelementptr float, ptr %b3, i64 %i6
  %t38 = load float, ptr %t37, align 4
  %t39 = fadd float %t36, %t38
  %t40 = getelementptr float, ptr %b2, i64 %i6
  store float %t39, ptr %t40, align 4
  br label %latch2
latch2:
  %i.next7 = add nsw i64 %i6, 1
  %t41 = icmp slt i64 %i.next7, %end
  br i1 %t41, label %loop1, label %end3
end3:
  ret void
}

define internal void @scaled_row_sums.task0(ptr %closure, i64 %begin, i64 %end) nounwind "no-builtins" "prefer-vector-width"="512" {
entry:
  br label %start
start:
  %t1 = getelementptr i64, ptr %closure, i32 0
  %t2 = load ptr, ptr %t1
  %t3 = getelementptr i64, ptr %closure, i32 1
  %t4 = load ptr, ptr %t3
  %t5 = getelementptr i64, ptr %closure, i32 2
  %t6 = load ptr, ptr %t5
  %t7 = getelementptr i64, ptr %closure, i32 3
  %t8 = load ptr, ptr %t7
  call void @scaled_row_sums.task0.body(ptr %t2, ptr %t4, ptr %t6, ptr %t8, i64 %begin, i64 %end)
  ret void
}

define void @scaled_row_sums(ptr %rt, ptr noalias readonly %b0, ptr noalias readonly %b1, ptr noalias readonly %b2, ptr noalias %b3) nounwind "no-builtins" "prefer-vector-width"="512" {
entry:
  %closure1 = alloca [4 x i64], align 8
  br label %start
start:
  %t2 = getelementptr i64, ptr %closure1, i32 0
  store ptr %b0, ptr %t2
  %t3 = getelementptr i64, ptr %closure1, i32 1
  store ptr %b1, ptr %t3
  %t4 = getelementptr i64, ptr %closure1, i32 2
  store ptr %b3, ptr %t4
  %t5 = getelementptr i64, ptr %closure1, i32 3
  store ptr %b2, ptr %t5
  %t6 = getelementptr { i64, ptr, ptr, ptr }, ptr %rt, i32 0, i32 1
  %t7 = load ptr, ptr %t6
  call void %t7(ptr %rt, ptr @scaled_row_sums.task0, ptr %closure1, i64 10)
  ret void
}
